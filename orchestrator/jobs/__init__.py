"""Durable jobs. The Job row is the truth; a Celery message is a hint that says: look at job N.

A job runs under a lease that its worker's heartbeat renews. Each start has its own attempt number,
the fencing token: every write that a job makes is conditional on it, so a worker that lost its
lease (frozen, cut off, thought dead) changes nothing any more. A sweep announces again what is
queued, or running with an ended lease. So a dead worker, a lost message, a duplicate and a zombie
are all survived.

- `services`  enqueue, cancel, sweep: what everyone calls
- `registry`  `@job_handler("run.execute")` in an app's `jobs.py`
- `lease`     claim, beat, finish, fail, release: each one conditional UPDATE
- `fencing`   `Fence`, `hold_fence`, `LeaseLost`
- `execution` runs one attempt under a heartbeat; the error boundary

A job's handler is started again after a crash: it must find in the database what is done already.
"""
