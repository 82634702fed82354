"""The built-in kind `terminal`: small folders of files, questions on them, a real shell.

`tasks` makes the exercises, `observation` decides how a command's result reads, `server` is the
OpenEnv server. Only `server` imports `openenv`; the rest is safe in any process.
"""
