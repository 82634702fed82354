"""Job kinds of review, registered on import."""

from __future__ import annotations

from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.review.alignment import JOB_KIND
from orchestrator.review.alignment_job import align, record_unfinished


@job_handler(JOB_KIND, on_unfinished=record_unfinished)
def run_alignment(ctx: JobContext) -> None:
    align(ctx)
