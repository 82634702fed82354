"""Runs all checks over one snapshot of the database."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from django.db import connection, transaction

from orchestrator.invariants import reading
from orchestrator.invariants.budgets import check_budgets
from orchestrator.invariants.finding import Finding, Findings
from orchestrator.invariants.jobs import check_jobs, check_owned
from orchestrator.invariants.logs import check_attempts, check_whole
from orchestrator.invariants.owners import (
    check_ends,
    check_open_rollouts,
    check_rungs,
    check_steps,
    check_tallies,
    check_waiting,
)
from orchestrator.invariants.rollouts import (
    check_course,
    check_once,
    check_retry,
    check_score,
    check_verdicts,
)
from orchestrator.invariants.webhooks import check_deliveries

T = TypeVar("T")
INVARIANTS = {
    "log.whole": "the sequence of each stream is 1..n without a gap, and n is its counter",
    "log.attempts": "no event of an older attempt follows one of a newer attempt",
    "rollout.once": "one rollout counts per run, harness, task and replicate",
    "rollout.retry": "only a rollout that lost its worker is repeated, once, with its seed",
    "rollout.ended": "an ended rollout has one end in its log, and it is the last event",
    "rollout.score": "the score and state of a row are those of its log; a failure has no number",
    "rollout.verdicts": "verdicts of rows and log agree, in legal states",
    "run.rollouts": "a run that has ended has no open rollout",
    "run.tally": "what a run told last is what its rollouts add up to: costs counted once",
    "owner.ended": "runs, climbs, searches, gates and trainings end once, as their rows say; "
    "a search once more after each resume",
    "owner.job": "what is not over has something under way that will move it",
    "climb.rungs": "a rung is done with a verdict, and none runs in a climb that has ended",
    "training.steps": "steps of a training are told once each, in order",
    "job.state": "a job's state, claims, end and reason fit one another",
    "job.lease": "a running job has a worker, and no lease stays ended",
    "job.rest": "with --at-rest: no job is queued or running",
    "budget.once": "an amount is reserved once, and settled or refunded once",
    "budget.sums": "what budgets hold is what their entries add up to",
    "budget.cap": "no budget of rollouts is passed",
    "webhook.delivered": "a message is delivered if and only if one attempt was heard",
    "webhook.job": "a message that waits has a job that will send it",
}

MOST = 200
"""Findings after which it stops to look."""


@dataclass
class Report:
    findings: list[Finding] = field(default_factory=list)
    looked_at: dict[str, int] = field(default_factory=dict)
    """Rows by what they are."""

    @property
    def is_sound(self) -> bool:
        return not self.findings

    @property
    def is_cut_off(self) -> bool:
        """There may be more than what was found."""
        return len(self.findings) >= MOST


def verify(*, at_rest: bool = False) -> Report:
    """All findings, at most MOST. Beside running work it sees one moment of it."""
    report = Report()
    with _snapshot():
        found = itertools.chain.from_iterable(part(report) for part in _parts(at_rest))
        report.findings.extend(itertools.islice(found, MOST))
    return report


def _parts(at_rest: bool) -> Iterator[Callable[[Report], Findings]]:
    yield lambda r: check_whole(_counted(r, "streams", reading.streams()))
    yield lambda r: check_attempts(reading.attempts())
    yield lambda r: check_once(reading.rollouts_twice())
    yield _rollouts
    yield lambda r: check_open_rollouts(reading.open_rollouts())
    yield lambda r: check_ends(_counted(r, "owners", reading.ends()))
    yield lambda r: check_tallies(_counted(r, "ended runs", reading.last_tallies()))
    yield lambda r: check_rungs(_counted(r, "rungs", reading.rungs()))
    yield lambda r: check_steps(_counted(r, "training steps", reading.steps()))
    yield lambda r: check_jobs(_counted(r, "jobs", reading.jobs()), at_rest=at_rest)
    yield lambda r: check_owned(reading.owned())
    yield lambda r: check_waiting(reading.waiting())
    yield _budgets
    yield lambda r: check_deliveries(_counted(r, "deliveries", reading.deliveries()))


def _rollouts(report: Report) -> Findings:
    for row, told, verdicts in _counted(report, "rollouts", reading.rollouts_with_logs()):
        yield from check_score(row)
        yield from check_course(row, told)
        yield from check_verdicts(row, verdicts, told)
    for old, retry in _counted(report, "retries", reading.replaced()):
        yield from check_retry(old, retry)


def _budgets(report: Report) -> Findings:
    budgets, entries = reading.budgets()
    yield from check_budgets(_counted(report, "budgets", budgets), entries)


def _counted(report: Report, name: str, rows: Iterator[T]) -> Iterator[T]:
    report.looked_at.setdefault(name, 0)
    for row in rows:
        report.looked_at[name] += 1
        yield row


@contextmanager
def _snapshot() -> Iterator[None]:
    """Reads see one moment. On SQLite without the write lock that Django's `atomic` takes."""
    if connection.in_atomic_block:
        yield
    elif connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("BEGIN DEFERRED")
            try:
                yield
            finally:
                cursor.execute("ROLLBACK")
    else:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            yield
