"""The built-in kind `sql`: a database for each episode, statements, the state that they leave.

`tasks` says what an exercise is; `state` and `answers` compare, `observation` renders: all three
pure. `runner` is the process that holds the database and runs statements within limits; `child`
talks to it. `sqlite` and `postgres` are the engines, `grade` the verdict, `environment` the OpenEnv
environment and `server` its process. Only `environment` imports `openenv`.
"""
