"""The fencing token, and the check that every write of a job makes.

Job and the owner of a log are different rows. The check is a conditional no-op UPDATE of the job
row inside the writer's transaction: it takes the row's lock on PostgreSQL (reading `attempt`
without one would be wrong there) and is covered by the immediate transaction on SQLite.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import transaction
from django.db.models import F

from orchestrator.jobs.errors import LeaseLost
from orchestrator.jobs.models import Job, JobState


@dataclass(frozen=True)
class Fence:
    job_id: int
    attempt: int
    """The attempt that this fence speaks for; an older one is refused."""


def hold_fence(fence: Fence) -> None:
    """LeaseLost unless this attempt owns the job. Call it inside `atomic()`, before writing."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("hold_fence outside a transaction protects nothing")
    held = Job.objects.filter(
        pk=fence.job_id, attempt=fence.attempt, state=JobState.RUNNING
    ).update(attempt=F("attempt"))
    if not held:
        raise LeaseLost(f"attempt {fence.attempt} of job {fence.job_id} no longer owns it")
