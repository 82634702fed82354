"""Job kinds of runs."""

from __future__ import annotations

from orchestrator.jobs.errors import Cancelled
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.runs.engine import execute_run
from orchestrator.runs.models import Run
from orchestrator.runs.services import end_cancelled_run, end_failed_run


def record_unfinished(job: Job) -> None:
    """A run whose job was cancelled or given up ends with it."""
    run = Run.objects.filter(pk=job.spec["run_id"]).first()
    if run is None:
        return
    if job.state == JobState.CANCELLED:
        end_cancelled_run(run=run, fence=None)
    else:
        end_failed_run(run=run, error=job.error)


@job_handler("runs.execute", on_unfinished=record_unfinished)
def execute(ctx: JobContext) -> None:
    run = Run.objects.get(pk=ctx.spec["run_id"])
    try:
        execute_run(run=run, ctx=ctx)
    except Cancelled:
        end_cancelled_run(run=run, fence=ctx.fence)
        raise
