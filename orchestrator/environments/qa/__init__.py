"""The built-in kind `qa`: one question, one answer, compared with reference answers.

`answers` says what a task is and when an answer is right, `environment` is the OpenEnv environment
and `server` its process. Only `environment` imports `openenv`; the rest is safe in any process.
"""
