"""The fencing token, and the check that every write of a job makes.

Job and the owner of a log are different rows. On PostgreSQL the check is a conditional no-op UPDATE
of the job row inside the writer's transaction: it takes the row's lock, without which reading
`attempt` would be wrong. On SQLite transactions are immediate, nobody else writes meanwhile, and
reading is enough: an UPDATE would add a page to every commit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from orchestrator.jobs.errors import LeaseLost
from orchestrator.jobs.models import JobState

_CHECK = "SELECT 1 FROM jobs_job WHERE id = %s AND attempt = %s AND state = %s"
_HOLD = (
    "UPDATE jobs_job SET attempt = attempt WHERE id = %s AND attempt = %s AND state = %s"
    " RETURNING 1"
)


@dataclass(frozen=True)
class Fence:
    job_id: int
    attempt: int
    """The attempt that this fence speaks for; an older one is refused."""


def hold_fence(fence: Fence) -> None:
    """LeaseLost unless this attempt owns the job. Call it inside `atomic()`, before writing."""
    if not transaction.get_connection().in_atomic_block:
        raise RuntimeError("hold_fence outside a transaction protects nothing")
    connection = transaction.get_connection()
    with connection.cursor() as cursor:

        def execute(sql: str, params: Sequence[Any]) -> Sequence[Any]:
            cursor.execute(sql, params)
            rows: list[Any] = cursor.fetchall()
            return rows

        check_fence(fence, execute, locks_rows=connection.vendor != "sqlite")


def check_fence(
    fence: Fence, execute: Callable[[str, Sequence[Any]], Sequence[Any]], *, locks_rows: bool
) -> None:
    """`hold_fence` for a transaction that the caller has begun by hand."""
    check = _HOLD if locks_rows else _CHECK
    if not execute(check, [fence.job_id, fence.attempt, JobState.RUNNING.value]):
        raise LeaseLost(f"attempt {fence.attempt} of job {fence.job_id} no longer owns it")
