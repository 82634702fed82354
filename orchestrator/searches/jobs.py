"""Job kinds of searches."""

from __future__ import annotations

from optimizer.models import Search
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.searches.ending import fail_search
from orchestrator.searches.machine import advance
from orchestrator.searches.queueing import JOB_KIND


def record_unfinished(job: Job) -> None:
    if job.state == JobState.FAILED:
        search = Search.objects.get(pk=job.spec["search_id"])
        fail_search(search=search, error=job.error)


@job_handler(JOB_KIND, on_unfinished=record_unfinished)
def advance_search(ctx: JobContext) -> None:
    advance(search_id=ctx.spec["search_id"], fence=ctx.fence)
