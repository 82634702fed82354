"""Job kinds of webhooks."""

from __future__ import annotations

from orchestrator.jobs.models import Job
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.webhooks.sending import JOB_KIND, deliver, record_unfinished


def on_unfinished(job: Job) -> None:
    record_unfinished(job.spec["delivery_id"], job.error)


@job_handler(JOB_KIND, on_unfinished=on_unfinished)
def execute(ctx: JobContext) -> None:
    deliver(ctx.spec["delivery_id"], ctx.fence)
