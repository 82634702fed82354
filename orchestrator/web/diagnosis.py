"""What a run in progress waits for, in one sentence, and whether somebody should look. Pure.

A run is stuck when nobody works on it, or when nothing of it has ended for a quarter of an hour
while the oldest rollout is older than that. Being slow is no reason to be called stuck.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.web.templatetags.formats import count, duration

STUCK = timedelta(minutes=15)
"""Without any rollout ending."""
UNTAKEN = timedelta(seconds=60)
"""A queued job that nobody takes for so long, with no worker busy, has no worker."""
SILENT = timedelta(seconds=60)
"""Past the end of a lease; a sweep gives it away within seconds."""


@dataclass(frozen=True)
class LiveRun:
    environment: str
    is_started: bool
    """A worker has begun with it."""
    asked_at: datetime
    pending: int
    running: int
    judging: int
    oldest_at: datetime | None
    """Start of the oldest rollout in progress."""
    last_ended_at: datetime | None
    lease_until: datetime | None
    is_cancelling: bool = False

    @property
    def open(self) -> int:
        return self.pending + self.running + self.judging


@dataclass(frozen=True)
class Diagnosis:
    sentence: str
    is_stuck: bool = False


def of_run(run: LiveRun, *, now: datetime, workers: int) -> Diagnosis:
    """`workers`: how many hold a lease on anything at the moment."""
    if run.is_cancelling:
        return Diagnosis(f"is being cancelled; {_rollouts(run.open)} still end")
    if not run.is_started:
        waited = now - run.asked_at
        if waited > UNTAKEN and not workers:
            return Diagnosis(f"waits for a worker since {duration(waited)}: none is there", True)
        return Diagnosis("waits for a free worker")
    if run.lease_until is not None and now - run.lease_until > SILENT:
        silent = duration(now - run.lease_until)
        return Diagnosis(f"its worker has not been heard of for {silent}", True)
    if not run.open:
        return Diagnosis("all rollouts have ended; it is about to end")
    if run.judging == run.open:
        return Diagnosis(f"{_rollouts(run.judging)} wait for their group to be judged")
    if run.oldest_at is None:
        return Diagnosis(
            f"waits for a slot of {run.environment}: {_rollouts(run.pending)} not started",
            _is_quiet(run, now, run.asked_at),
        )
    oldest = now - run.oldest_at
    sentence = f"waits for {_rollouts(run.open)} of {run.environment}, oldest {duration(oldest)}"
    return Diagnosis(sentence, oldest > STUCK and _is_quiet(run, now, run.oldest_at))


def _is_quiet(run: LiveRun, now: datetime, since: datetime) -> bool:
    return now - max(since, run.last_ended_at or since) > STUCK


def _rollouts(n: int) -> str:
    return f"{count(n)} rollout{'' if n == 1 else 's'}"
