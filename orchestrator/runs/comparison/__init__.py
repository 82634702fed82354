"""Comparison of runs on the same tasks, and of two rollouts step by step.

- `table`: facts of rollouts as tasks × sides, with paired differences. Pure.
- `conditions`: what the sides differ in beside their scores, and what to be warned of. Pure.
- `steps`: two traces aligned by what the agent did. Pure.
- `reading`: reads sides and traces from the database.

A side is a run, or one harness of a run that had several. The first side is the baseline. Sides are
paired on (task, replicate) and the unit is the task, as certificates do it. What errored is left
out and counted; a failure is never a zero.
"""
