"""Environment servers: started, watched, reused and stopped.

`spec` says what a server is and how one is asked for; `local` runs a command as a child process,
`url` stands for a server that somebody else runs; `pool` keeps the live ones of this process;
`readiness` proves that episodes start. Methods block (seconds at a start); asynchronous code uses
`ServerPool.ready_server`.
"""
