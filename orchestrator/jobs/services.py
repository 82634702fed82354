from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import structlog
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F, Q
from structlog.contextvars import get_contextvars

from orchestrator import tracing
from orchestrator.inserting import insert
from orchestrator.jobs import lease
from orchestrator.jobs.announcing import BROKER_ERRORS, announce, count_messages
from orchestrator.jobs.clock import instant, read_now
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import handler_for

log = structlog.get_logger(__name__)

# Doubling without end would leave a lost message unnoticed for hours.
_LONGEST_SILENCE_S = 30.0
# A clock that was set back by more leaves instants behind that nobody needs to wait for.
_CLOCK_STEP_S = 60.0
# Bounds one round of the sweep; the rest comes a second later.
_ROWS_PER_ROUND = 100


def enqueue(
    *,
    kind: str,
    spec: dict[str, Any],
    queue: str = "default",
    key: str | None = None,
    max_attempts: int = 5,
    not_before: datetime | None = None,
) -> Job:
    """A new job, announced when the surrounding transaction commits.

    With a `key` that exists already the earlier job is returned, whatever its state.
    Raises ValueError for a kind without a handler and for an unknown queue.
    """
    version = handler_for(kind).version
    if queue not in settings.JOB_QUEUES:
        raise ValueError(f"unknown queue {queue!r}; accepted: {', '.join(settings.JOB_QUEUES)}")
    now = read_now()
    is_delayed, silent_until = False, now + timedelta(seconds=settings.JOB_GRACE_S)
    if not_before is not None and not_before > now:
        is_delayed, silent_until = True, not_before
    job = Job(
        kind=kind,
        queue=queue,
        spec=spec,
        version=version,
        key=key,
        max_attempts=max_attempts,
        origin=origin_of_now(),
        not_before=not_before,
        lease_until=silent_until,
        announced_count=0 if is_delayed else 1,
        announced_at=None if is_delayed else now,
    )
    try:
        with transaction.atomic():
            insert(job)
    except IntegrityError:
        earlier = Job.objects.filter(key=key).first() if key is not None else None
        if earlier is None:
            raise
        return earlier
    if not is_delayed:
        transaction.on_commit(partial(announce, job.pk, queue), robust=True)
    return job


def origin_of_now() -> dict[str, Any]:
    """What the log lines and spans of this moment belong to."""
    bound = get_contextvars()
    told: dict[str, Any] = {name: bound[name] for name in ("request_id", "job_id") if name in bound}
    if parent := tracing.traceparent():
        told["traceparent"] = parent
    return told


def cancel(*, job: Job) -> None:
    """A queued job ends at once; a running one is told at its next beat. Safe to repeat."""
    if lease.end_queued(job.pk):
        return
    Job.objects.filter(pk=job.pk, state=JobState.RUNNING).update(cancel_requested=True)


def sweep(*, is_first: bool = False) -> int:
    """Announces again what should run and does not; returns the number of announcements.

    Two kinds of rows: queued ones whose silence is over, and running ones whose lease has ended.
    A job that waits because all workers are busy looks like one whose message was lost. So a queue
    gets no more announcements than it has jobs without a message in the broker, and each job's
    silence doubles. `is_first`: the first round after a start, which waits for no silence, since
    the workers before us took their fetched messages with them.
    """
    announced = 0
    for queue in settings.JOB_QUEUES:
        waiting = Job.objects.filter(
            Q(not_before=None) | Q(not_before__lte=instant()), queue=queue, state=JobState.QUEUED
        )
        due = waiting if is_first else waiting.filter(_silence_is_over())
        dead = Job.objects.filter(queue=queue, state=JobState.RUNNING, lease_until__lt=instant())
        if not due.exists() and not dead.exists():
            continue
        try:
            room = waiting.count() + dead.count() - count_messages(queue)
        except BROKER_ERRORS as error:
            log.warning("broker unreachable", queue=queue, error=str(error))
            continue
        rows = [
            *_quiet_long_enough(dead),
            *due.order_by("lease_until")[:_ROWS_PER_ROUND],
        ]
        for job in rows[: max(0, min(room, _ROWS_PER_ROUND))]:
            announced += _announce_again(job)
    return announced


def end_leases_of_dead_workers() -> int:
    """Ends the lease of each job whose worker process on this host is gone; returns their number.

    A lease guards against a worker that may still write. A process that does not exist cannot, so
    nobody needs to wait for the end of its lease. Only for a single host: elsewhere the same host
    name may belong to another process table.
    """
    prefix = f"{socket.gethostname()}:"
    held = Job.objects.filter(
        state=JobState.RUNNING, worker__startswith=prefix, lease_until__gt=instant()
    )
    ended = 0
    for job in held.only("pk", "attempt", "worker"):
        if not _is_running(int(job.worker.removeprefix(prefix))):
            ended += Job.objects.filter(
                pk=job.pk, attempt=job.attempt, state=JobState.RUNNING
            ).update(lease_until=instant())
    return ended


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _silence_is_over() -> Q:
    """Also one that ends later than any does: the clock was ahead when it began."""
    longest_s = max(_LONGEST_SILENCE_S, settings.JOB_GRACE_S)
    too_late = Q(lease_until__gt=instant(longest_s + _CLOCK_STEP_S))
    return Q(lease_until__lte=instant()) | too_late


def _quiet_long_enough(dead: Any) -> list[Job]:
    now = read_now()
    return [
        job
        for job in dead.order_by("lease_until")[:_ROWS_PER_ROUND]
        if job.announced_at is None
        or job.announced_at > now + timedelta(seconds=_CLOCK_STEP_S)
        or job.announced_at + timedelta(seconds=silence_s(job.announced_count)) <= now
    ]


def silence_s(announced_count: int) -> float:
    """Seconds between announcement number `announced_count` and the next."""
    return min(_LONGEST_SILENCE_S, settings.JOB_GRACE_S * 2.0 ** min(announced_count, 30))


def _announce_again(job: Job) -> bool:
    """Marks first, then sends: a crash in between costs one silence, not a flood."""
    changes: dict[str, Any] = {
        "announced_count": F("announced_count") + 1,
        "announced_at": instant(),
    }
    if job.state == JobState.QUEUED:
        changes["lease_until"] = instant(silence_s(job.announced_count))
    still_so = Job.objects.filter(
        pk=job.pk, state=job.state, attempt=job.attempt, announced_count=job.announced_count
    )
    return bool(still_so.update(**changes)) and announce(job.pk, job.queue)
