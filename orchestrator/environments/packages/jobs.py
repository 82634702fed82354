"""Job kinds of registrations."""

from __future__ import annotations

from orchestrator.environments.models import RegistrationState, SourceRegistration
from orchestrator.environments.packages.registering import end_registration, execute_registration
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler


def record_unfinished(job: Job) -> None:
    """A registration whose job was cancelled or given up ends with it."""
    registration = SourceRegistration.objects.filter(pk=job.spec["registration_id"]).first()
    if registration is None:
        return
    is_cancelled = job.state == JobState.CANCELLED
    end_registration(
        registration=registration,
        state=RegistrationState.CANCELLED if is_cancelled else RegistrationState.FAILED,
        message="Cancelled." if is_cancelled else job.error,
    )


@job_handler("environments.register", on_unfinished=record_unfinished)
def register(ctx: JobContext) -> None:
    registration = SourceRegistration.objects.get(pk=ctx.spec["registration_id"])
    execute_registration(registration=registration, ctx=ctx)
