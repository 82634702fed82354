"""Job kinds of the log."""

from __future__ import annotations

import time

from orchestrator.events.indexing import JOB_KIND, index_some, is_growing
from orchestrator.jobs.registry import JobContext, job_handler

LINGER_S = 2.0
"""Without new events, until the job ends: events come in streams, and each job is a row."""
LONGEST_S = 60.0
_PAUSE_S = 0.2


@job_handler(JOB_KIND)
def execute(ctx: JobContext) -> None:
    linger_s = float(ctx.spec.get("linger_s", LINGER_S))
    started_s = busy_s = time.monotonic()
    while (now_s := time.monotonic()) - busy_s < linger_s and now_s - started_s < LONGEST_S:
        ctx.check()
        began_s = time.monotonic()
        if index_some():
            busy_s = time.monotonic()
            if is_growing():
                # Whoever takes events in goes first: half of the time is theirs alone.
                ctx.wait(busy_s - began_s)
        else:
            ctx.wait(min(_PAUSE_S, linger_s))
