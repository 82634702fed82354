"""Whether an environment keeps what a score needs it to keep: the graders of `Check environment`.

A grader plays a few short episodes on a real server and returns one `Finding`. It knows no
database: `subject` is what it may look at, `probing` makes actions, `comparing` compares what came
back. `catalogue` says once, for each check, what it means and what to do. `running` is the boundary
around graders: a deadline each, and one that breaks is a finding of its own.

Findings never hold an answer: a leak is told by where it is and how long it is. Tasks of the sealed
split are played only where a version has no others.

The ids are those of OpenEnv's validation policy where it names a check (`seed_control`,
`episode_isolation`, `canary_floor`, …); openenv 0.10 implements none of these.
"""
