"""Job kinds of climbs."""

from __future__ import annotations

from django.db import transaction

from orchestrator.climbs.budget import BudgetExceeded
from orchestrator.climbs.machine import advance
from orchestrator.climbs.models import Climb
from orchestrator.climbs.services import fail_climb
from orchestrator.climbs.watch import JOB_KIND, watch
from orchestrator.climbs.weights import execute_training, record_training_unfinished
from orchestrator.events.services import hold_fence
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.runs.models import ENDED_RUN_STATES, Purpose, Run
from orchestrator.runs.services import end_cancelled_run, end_failed_run
from training.models import TrainingJob


def record_advance_unfinished(job: Job) -> None:
    if job.state == JobState.FAILED:
        climb = Climb.objects.get(pk=job.spec["climb_id"])
        fail_climb(climb=climb, error=job.error)


@job_handler("climbs.advance", on_unfinished=record_advance_unfinished)
def advance_climb(ctx: JobContext) -> None:
    climb_id = ctx.spec["climb_id"]
    try:
        advance(climb_id=climb_id, fence=ctx.fence)
    except BudgetExceeded as exc:
        with transaction.atomic():
            hold_fence(ctx.fence)
            fail_climb(climb=Climb.objects.get(pk=climb_id), error=str(exc))


@job_handler(JOB_KIND)
def watch_climb(ctx: JobContext) -> None:
    watch(**ctx.spec, fence=ctx.fence)


def record_execute_unfinished(job: Job) -> None:
    """The run of the step under way has no job of its own: it ends with the training job."""
    runs = Run.objects.filter(
        climb_run__climb__training_job=job.spec["training_job_id"],
        purpose=Purpose.TRAIN,
        job__isnull=True,
    )
    for run in runs.exclude(state__in=ENDED_RUN_STATES):
        if job.state == JobState.CANCELLED:
            end_cancelled_run(run=run, fence=None)
        else:
            end_failed_run(run=run, error=job.error)
    record_training_unfinished(job)


@job_handler("training.execute", on_unfinished=record_execute_unfinished)
def execute(ctx: JobContext) -> None:
    job = TrainingJob.objects.select_related("climb").get(pk=ctx.spec["training_job_id"])
    execute_training(job=job, ctx=ctx)
