"""Job kinds of trainings."""

from __future__ import annotations

from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.trainings import own  # noqa: F401 # registers its origin
from orchestrator.trainings.checkpoints import MERGE, merge, record_merge_unfinished
from orchestrator.trainings.keeper import execute_training
from orchestrator.trainings.lens import LENS, look
from orchestrator.trainings.services import end_unfinished
from training.models import TrainingJob


def record_unfinished(job: Job) -> None:
    """The run of the step under way has no job of its own: it ends with the training job."""
    training_job = TrainingJob.objects.filter(pk=job.spec["training_job_id"], job=job).first()
    if training_job is not None:
        is_cancelled = job.state == JobState.CANCELLED
        end_unfinished(job=training_job, is_cancelled=is_cancelled, error=job.error)


@job_handler("training.execute", on_unfinished=record_unfinished)
def execute(ctx: JobContext) -> None:
    job = TrainingJob.objects.get(pk=ctx.spec["training_job_id"])
    execute_training(job=job, ctx=ctx)


def record_merge(job: Job) -> None:
    record_merge_unfinished(job.spec["checkpoint_id"], job.error)


@job_handler(MERGE, on_unfinished=record_merge)
def execute_merge(ctx: JobContext) -> None:
    merge(ctx)


@job_handler(LENS)
def execute_lens(ctx: JobContext) -> None:
    look(ctx)
