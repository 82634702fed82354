"""Which processes of the product run, on which hosts, with what code: each says so in a row.

A row is a sign of life with the process's figures (`orchestrator.measures`), written every
`PROCESS_BEAT_S` by a thread of its own. Nothing is decided by it: leases decide who may work. It is
what people and monitors see of processes that they cannot reach.
"""
