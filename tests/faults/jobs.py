from __future__ import annotations

import os
import signal

from orchestrator.events.models import Stream
from orchestrator.events.services import NewEvent, append
from orchestrator.jobs.registry import JobContext, Retryable, job_handler


@job_handler("fault.count")
def count(ctx: JobContext) -> None:
    """Appends ticks up to `n`, one transaction each, going on from what the log holds."""
    stream_id, last = ctx.spec["stream_id"], ctx.spec["n"]
    seq = Stream.objects.values_list("last_seq", flat=True).get(pk=stream_id)
    while seq < last:
        ctx.check()
        tick = NewEvent("tick", {"i": seq + 1, "attempt": ctx.fence.attempt})
        seq = append(stream_id=stream_id, items=[tick], fence=ctx.fence)
        ctx.stop.wait(ctx.spec.get("pause_s", 0.01))


@job_handler("fault.raise")
def fail(ctx: JobContext) -> None:
    raise ValueError("the handler is broken")


@job_handler("fault.die")
def die(ctx: JobContext) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@job_handler("fault.retry")
def retry(ctx: JobContext) -> None:
    if ctx.fence.attempt < ctx.spec["good_attempt"]:
        raise Retryable("not yet", delay_s=0.05)
