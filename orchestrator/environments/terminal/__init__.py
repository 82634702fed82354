"""The built-in kind `terminal`: small folders of files, questions on them, a real shell.

`tasks` makes the exercises, `observation` decides how a command's result reads, `environment` is
the OpenEnv environment and `server` its process. Only `environment` imports `openenv`; the rest is
safe in any process.
"""
