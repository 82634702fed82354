"""Job kinds of climbs."""

from __future__ import annotations

from django.db import transaction

from orchestrator.climbs.budget import BudgetExceeded
from orchestrator.climbs.machine import advance
from orchestrator.climbs.models import Climb
from orchestrator.climbs.services import fail_climb, pause_climb_for
from orchestrator.climbs.watch import JOB_KIND, watch
from orchestrator.events.services import hold_fence
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.runs.limits import LimitReached


def record_advance_unfinished(job: Job) -> None:
    if job.state == JobState.FAILED:
        climb = Climb.objects.get(pk=job.spec["climb_id"])
        fail_climb(climb=climb, error=job.error)


@job_handler("climbs.advance", on_unfinished=record_advance_unfinished)
def advance_climb(ctx: JobContext) -> None:
    climb_id = ctx.spec["climb_id"]
    try:
        advance(climb_id=climb_id, fence=ctx.fence)
    except LimitReached as exc:
        climb = Climb.objects.get(pk=climb_id)
        pause_climb_for(climb=climb, reason=str(exc), fence=ctx.fence)
    except BudgetExceeded as exc:
        with transaction.atomic():
            hold_fence(ctx.fence)
            fail_climb(climb=Climb.objects.get(pk=climb_id), error=str(exc))


@job_handler(JOB_KIND)
def watch_climb(ctx: JobContext) -> None:
    watch(**ctx.spec, fence=ctx.fence)
