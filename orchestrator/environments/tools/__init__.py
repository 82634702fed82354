"""The built-in kind `tools`: an author's Python functions or an MCP server, called step by step.

`tasks` says what a task is, `checks` compares what an agent leaves with what is expected,
`functions` makes tools of Python source, `mcp` speaks to a server of tools, `environment` is the
OpenEnv environment and `server` its process. The process runs in the sandbox, where nothing else of
this project is: so these modules import only one another, `tasks_file` and packages.
"""
