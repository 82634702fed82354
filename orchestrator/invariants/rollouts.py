"""Rollouts: unique, ended once, with the score that their log tells; none is repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.invariants.finding import Finding, Findings

SCORE_STATES = ("scored", "errored", "not_applicable", "pending")
OPEN_STATES = ("pending", "running", "judging")
LOST = "worker_lost"


class RolloutRow(NamedTuple):
    id: int
    stream_id: int
    run_id: int
    harness_id: int
    task_id: int
    replicate: int
    seed: int
    state: str
    score: float | None
    message: str
    cause: str
    attempt: int
    is_replaced: bool
    retry_of_id: int | None


class EventRow(NamedTuple):
    stream_id: int
    seq: int
    id: int
    kind: str
    payload: Mapping[str, Any]


class VerdictRow(NamedTuple):
    rollout_id: int
    criterion: str
    state: str
    value: float | None


class Told(NamedTuple):
    """What the log of a rollout says of its course."""

    last_seq: int
    started: int
    is_removed: bool
    """A rule of retention took its events and left one that says so."""
    ended: Sequence[EventRow]
    verdicts: Sequence[EventRow]


def check_once(rows: Iterable[tuple[int, int, int, int, int]]) -> Findings:
    """Rows: run, harness, task, replicate and how many rollouts count there."""
    for run, harness, task, replicate, n in rows:
        if n > 1:
            yield Finding(
                "rollout.once",
                f"run {run}",
                f"{n} rollouts count for harness {harness}, task {task}, replicate {replicate}",
            )


def check_retry(old: RolloutRow, retry: RolloutRow | None) -> Findings:
    """Of a rollout that was replaced: only what a lost worker cut off is attempted again."""
    subject = f"rollout {old.id}"
    if old.score is not None or old.state != "errored" or old.cause != LOST:
        yield Finding(
            "rollout.retry", subject, f"it was repeated although it had ended: {old.state}"
        )
    if retry is None:
        yield Finding("rollout.retry", subject, "it is replaced, and nothing took its place")
        return
    kept = ("run_id", "harness_id", "task_id", "replicate", "seed")
    changed = [name for name in kept if getattr(old, name) != getattr(retry, name)]
    if changed:
        yield Finding(
            "rollout.retry", subject, f"its retry {retry.id} has other {', '.join(changed)}"
        )
    if retry.attempt not in (0, old.attempt + 1):
        yield Finding(
            "rollout.retry",
            subject,
            f"attempt {old.attempt} is followed by attempt {retry.attempt} in rollout {retry.id}",
        )


def check_course(row: RolloutRow, told: Told) -> Findings:
    """An ended rollout says so once, last, and as its row does; an open one does not."""
    subject = f"rollout {row.id}"
    if told.is_removed:
        return
    if told.started > 1:
        yield Finding("rollout.ended", subject, f"it has started {told.started} times")
    if row.state in OPEN_STATES:
        if told.ended:
            yield Finding("rollout.ended", subject, f"it is {row.state}, but its log has an end")
        return
    if len(told.ended) != 1:
        yield Finding("rollout.ended", subject, f"its log has {len(told.ended)} ends")
        return
    (end,) = told.ended
    if end.seq != told.last_seq:
        yield Finding(
            "rollout.ended", subject, f"events up to {told.last_seq} follow its end at {end.seq}"
        )
    said = (end.payload.get("state"), end.payload.get("score"))
    if said != (row.state, row.score):
        yield Finding(
            "rollout.score",
            subject,
            f"the row says {row.state} {row.score}, the log {said[0]} {said[1]}",
        )


def check_score(row: RolloutRow) -> Findings:
    """A failure is never a number, and has a reason."""
    if (row.state == "scored") != (row.score is not None):
        yield Finding("rollout.score", f"rollout {row.id}", f"{row.state} with score {row.score}")
    if row.state == "errored" and not row.message:
        yield Finding("rollout.score", f"rollout {row.id}", "errored without a reason")


def check_verdicts(row: RolloutRow, verdicts: Sequence[VerdictRow], told: Told) -> Findings:
    """Verdicts of the rows and of the log are the same, in legal states."""
    subject = f"rollout {row.id}"
    for verdict in verdicts:
        if verdict.state not in SCORE_STATES:
            yield Finding(
                "rollout.verdicts", subject, f"{verdict.criterion} is in state {verdict.state!r}"
            )
        elif (verdict.state == "scored") != (verdict.value is not None):
            yield Finding(
                "rollout.verdicts",
                subject,
                f"{verdict.criterion} is {verdict.state} with value {verdict.value}",
            )
        elif verdict.state == "pending" and row.state not in OPEN_STATES:
            yield Finding(
                "rollout.verdicts", subject, f"it has ended, and {verdict.criterion} is pending"
            )
    if row.state in OPEN_STATES or told.is_removed:
        return  # a verdict that waits for its group is told when it comes
    stored = {v.criterion: (v.state, v.value) for v in verdicts}
    logged = {
        str(e.payload.get("criterion")): (e.payload.get("state"), e.payload.get("value"))
        for e in told.verdicts
    }
    if stored != logged:
        differs = sorted(k for k in {*stored, *logged} if stored.get(k) != logged.get(k))
        yield Finding("rollout.verdicts", subject, f"rows and log differ in {', '.join(differs)}")
