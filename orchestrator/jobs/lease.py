"""The life of an attempt: claim, beat, finish, fail, retry, release. One conditional UPDATE each.

The row count decides: nothing here reads first and writes later, so two workers can race and
exactly one wins, on SQLite and on PostgreSQL.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce

from orchestrator.jobs.clock import instant
from orchestrator.jobs.errors import UnknownKindError
from orchestrator.jobs.fencing import Fence
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import handler_for, runnable

log = structlog.get_logger(__name__)

_ERROR_CHARS = 4000


@dataclass(frozen=True)
class Claim:
    job: Job
    fence: Fence


def claim(job_id: int) -> Claim | None:
    """Takes the job if it may run now; None if somebody else has it, it waits, or it has ended.

    A job that was to be cancelled, or has used up its attempts, ends here.
    """
    claimable = Q(pk=job_id) & (
        Q(state=JobState.QUEUED) & (Q(not_before=None) | Q(not_before__lte=instant()))
        | Q(state=JobState.RUNNING, lease_until__lt=instant())
    )
    used_up = Q(strikes__gte=F("max_attempts"))
    with transaction.atomic():
        taken = (
            Job.objects.filter(claimable, runnable(), cancel_requested=False)
            .exclude(used_up)
            .update(
                state=JobState.RUNNING,
                attempt=F("attempt") + 1,
                strikes=F("strikes") + 1,
                worker=f"{socket.gethostname()}:{os.getpid()}",
                lease_until=instant(settings.JOB_LEASE_S),
                started_at=Coalesce(F("started_at"), instant()),
                announced_count=0,
                announced_at=None,
            )
        )
        if taken:
            job = Job.objects.get(pk=job_id)
            return Claim(job=job, fence=Fence(job_id=job_id, attempt=job.attempt))
    if _end(claimable & Q(cancel_requested=True), JobState.CANCELLED):
        return None
    _end(
        claimable & used_up,
        JobState.FAILED,
        error="gave up: its worker died in every attempt without progress (max_attempts)",
    )
    left = Job.objects.filter(claimable).exclude(runnable()).values("kind", "version").first()
    if left is not None:
        log.warning("job left to a newer worker", job_id=job_id, **left)
    return None


def beat(fence: Fence) -> bool | None:
    """Renews the lease. None: the lease is lost. Else whether somebody asked for cancellation.

    A late beat still renews as long as nobody took over.
    """
    with transaction.atomic():
        if not _owned(fence).update(lease_until=instant(settings.JOB_LEASE_S)):
            return None
        return Job.objects.values_list("cancel_requested", flat=True).get(pk=fence.job_id)


def finish(fence: Fence) -> bool:
    return bool(_owned(fence).update(state=JobState.DONE, ended_at=instant(), error=""))


def fail(fence: Fence, *, error: str) -> bool:
    return _end(_owner_q(fence), JobState.FAILED, error=error)


def cancelled(fence: Fence) -> bool:
    return _end(_owner_q(fence), JobState.CANCELLED)


def retry(fence: Fence, *, error: str, delay_s: float | None) -> bool:
    """Queues the job for a later attempt, or fails it when its attempts are used up."""
    strikes = _owned(fence).values_list("strikes", flat=True).first()
    if strikes is None:
        return False
    wait_s = min(60.0, 2.0**strikes) if delay_s is None else delay_s
    queued = (
        _owned(fence)
        .filter(strikes__lt=F("max_attempts"))
        .update(
            state=JobState.QUEUED,
            error=error[:_ERROR_CHARS],
            not_before=instant(wait_s),
            lease_until=instant(wait_s),
        )
    )
    return bool(queued) or fail(fence, error=f"{error} (after {strikes} attempts)")


def release(fence: Fence) -> bool:
    """Gives the job back on a graceful stop: anyone may claim it at once, no attempt is used up."""
    return bool(
        _owned(fence).update(
            state=JobState.QUEUED, strikes=F("strikes") - 1, lease_until=instant(), not_before=None
        )
    )


def let_be_announced(job_id: int) -> bool:
    """Ends the silence of a queued job: the sweep tells another worker of it at once."""
    queued = Job.objects.filter(pk=job_id, state=JobState.QUEUED)
    return bool(queued.update(lease_until=instant()))


def end_queued(job_id: int) -> bool:
    """Cancels a job that has not started."""
    return _end(Q(pk=job_id, state=JobState.QUEUED), JobState.CANCELLED)


def _owner_q(fence: Fence) -> Q:
    return Q(pk=fence.job_id, attempt=fence.attempt, state=JobState.RUNNING)


def _owned(fence: Fence) -> Any:
    return Job.objects.filter(_owner_q(fence))


def _end(where: Q, state: JobState, *, error: str = "") -> bool:
    """Ends the job that `where` finds and tells its owner, in one transaction."""
    with transaction.atomic():
        job = Job.objects.filter(where).first()
        if job is None:
            return False
        ended = Job.objects.filter(where, attempt=job.attempt).update(
            state=state, error=error[:_ERROR_CHARS], ended_at=instant()
        )
        if not ended:
            return False
        job.refresh_from_db()
        _tell_owner(job)
    return True


def _tell_owner(job: Job) -> None:
    try:
        hook = handler_for(job.kind).on_unfinished
    except UnknownKindError:
        return
    if hook is None:
        return
    try:
        with transaction.atomic():
            hook(job)
    except Exception:
        # The boundary around the owner's code: its fault must not keep the job alive for ever.
        log.exception("on_unfinished failed", job_id=job.pk, kind=job.kind)
