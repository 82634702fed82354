"""Training at work: the queue for devices, the keeper of the trainer, sweeps, checkpoints.

The trainer itself is `training`, a child process without Django. A job is asked for by an *origin*:
a climb's rung, or a person who starts a job or a sweep of its own (`origins`, `own`).

- `settings`   what a training is made of
- `scheduling` who gets a device; `devices` which there are
- `keeper`     one attempt: trainer alive, rollouts and evaluations answered, news recorded
- `sweeps`     the same training at several lambdas, with one verdict
- `services`   what people do; `queries` what pages read
"""
