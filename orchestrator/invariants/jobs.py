"""Jobs: a running one has a lease, an ended one has its end, an owner is not left without one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from orchestrator.invariants.finding import Finding, Findings

OPEN, ENDED = ("queued", "running"), ("done", "failed", "cancelled")
LONGEST_TAKEOVER_S = 120.0
"""A lease that ended longer ago than this was taken up by nobody: sweep, silence and dispatch take
seconds, at most half a minute where announcements were lost again and again."""


class JobRow(NamedTuple):
    id: int
    kind: str
    state: str
    attempt: int
    strikes: int
    max_attempts: int
    worker: str
    error: str
    overdue_s: float
    """Since its lease, or a queued one's silence, ended; negative while it lasts."""
    has_started: bool
    has_ended: bool


class OwnedRow(NamedTuple):
    """Something that is not over until its job is."""

    subject: str
    state: str
    job_state: str | None
    """Null: no job was queued for it."""


def check_jobs(rows: Iterable[JobRow], *, at_rest: bool) -> Findings:
    for row in rows:
        subject = f"job {row.id} ({row.kind})"
        if row.state not in (*OPEN, *ENDED):
            yield Finding("job.state", subject, f"unknown state {row.state!r}")
            continue
        if (row.state in ENDED) != row.has_ended:
            yield Finding("job.state", subject, f"{row.state}, and its end is wrong")
        if row.state in ("running", "done") and not (row.attempt and row.has_started):
            yield Finding("job.state", subject, f"{row.state} without ever being claimed")
        if row.strikes > min(row.attempt, row.max_attempts):
            yield Finding(
                "job.state",
                subject,
                f"{row.strikes} claims without progress, {row.attempt} claims,"
                f" {row.max_attempts} allowed",
            )
        if row.state == "failed" and not row.error:
            yield Finding("job.state", subject, "failed without a reason")
        if row.state == "running":
            if not row.worker:
                yield Finding("job.lease", subject, "it runs, and no worker has it")
            if row.overdue_s > LONGEST_TAKEOVER_S:
                yield Finding(
                    "job.lease", subject, f"nobody took it up {row.overdue_s:.0f} s after its lease"
                )
        if at_rest and row.state in OPEN:
            yield Finding("job.rest", subject, f"{row.state} when all should have ended")


def check_owned(rows: Iterable[OwnedRow]) -> Findings:
    """Who is not over has a job that is not over: else nobody would ever end it."""
    for row in rows:
        if row.job_state is None:
            yield Finding("owner.job", row.subject, f"{row.state}, and no job works on it")
        elif row.job_state not in OPEN:
            yield Finding("owner.job", row.subject, f"{row.state}, but its job is {row.job_state}")
