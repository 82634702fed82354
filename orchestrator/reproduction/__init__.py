"""ECHO's experiment on this machine: the terminal environment, the bundled model, seeds by lambda.

`cells` says what is run, `world` what it is run on, `player` samples and grades, `grid` keeps the
trainers and writes one line per finished cell, `results` draws the table and the claims from these
lines, `pictures` their curves. No database and no torch: weights live in the trainer and the model
server, which are child processes, and so is the environment's server.

What is measured stands in `docs/reproduction.md`.
"""
