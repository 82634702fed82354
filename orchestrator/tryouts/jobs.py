"""The job kind of tryouts."""

from __future__ import annotations

from orchestrator.jobs.models import Job
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.tryouts.host import host_tryout
from orchestrator.tryouts.models import Tryout
from orchestrator.tryouts.services import lose_tryout


def record_unfinished(job: Job) -> None:
    """A tryout whose job failed or was given up is lost. One that was closed has ended already."""
    tryout = Tryout.objects.filter(pk=job.spec["tryout_id"], job=job).first()
    if tryout is not None:
        lose_tryout(tryout=tryout, message=job.error or "Its job was cancelled.", fence=None)


@job_handler("tryouts.host", on_unfinished=record_unfinished)
def host(ctx: JobContext) -> None:
    tryout = (
        Tryout.objects.select_related("version__environment", "task", "rubric_version__rubric")
        .filter(pk=ctx.spec["tryout_id"], job_id=ctx.job_id)
        .first()
    )
    if tryout is not None:
        host_tryout(tryout=tryout, ctx=ctx)
