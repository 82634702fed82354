"""Whatever was started ends once: runs, climbs, searches, gates, trainings, re-grades.

A search that failed may be resumed; then it has not ended any more, and ends once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from orchestrator.invariants.finding import Finding, Findings

RESUMED = {"search": ("failed", ("queued", "running"))}
"""By kind: the one end that is none any more when one of these states follows it
(`searches.services.resume`).
"""


class Turn(NamedTuple):
    """An event that tells of a state, or of an end."""

    state: Any
    is_end: bool


class EndRow(NamedTuple):
    """Something with a log, and the states that its log tells."""

    kind: str
    """run, climb, search, gate or training."""
    id: int
    state: str
    is_ended: bool
    turns: Sequence[Turn]
    """In order; of a run, a gate and a training the ends alone."""


class WaitRow(NamedTuple):
    """Something that moves by one job for each event that it waits for."""

    subject: str
    state: str
    open_work: int
    """Jobs, runs, proposals … that will move it once they end."""


class TallyRow(NamedTuple):
    run_id: int
    told: Mapping[str, Any]
    """The last tally in the run's log."""
    counted: Mapping[str, Any]
    """The same, from the rows."""


class RungRow(NamedTuple):
    climb_id: int
    climb_state: str
    position: int
    state: str
    verdict: str


class StepRow(NamedTuple):
    training_id: int
    step: int
    """Of an event `train.step`, in order."""
    total: int
    """Steps that are done, as the row of the job says."""


def check_ends(rows: Iterable[EndRow]) -> Findings:
    for row in rows:
        subject = f"{row.kind} {row.id}"
        for turn, following in pairwise(row.turns):
            if turn.is_end and not _is_resumed(row.kind, turn, following):
                said = f"its log tells {following.state} after {turn.state}"
                yield Finding("owner.ended", subject, said)
        last = row.turns[-1] if row.turns else None
        if last is None or not last.is_end:
            if row.is_ended:
                yield Finding("owner.ended", subject, f"{row.state}, and its log has no end")
        elif not row.is_ended:
            said = f"it is {row.state}, and its log has an end: {last.state}"
            yield Finding("owner.ended", subject, said)
        elif last.state != row.state:
            said = f"the row says {row.state}, the log {last.state}"
            yield Finding("owner.ended", subject, said)


def _is_resumed(kind: str, end: Turn, following: Turn) -> bool:
    if kind not in RESUMED:
        return False
    resumable, states = RESUMED[kind]
    return end.state == resumable and following.state in states


def check_waiting(rows: Iterable[WaitRow]) -> Findings:
    """Who waits for nothing that is under way waits for ever."""
    for row in rows:
        if not row.open_work:
            yield Finding("owner.job", row.subject, f"{row.state}, and nothing will move it")


def check_open_rollouts(rows: Iterable[tuple[int, str, int]]) -> Findings:
    """Rows: run, its state, how many of its rollouts are open; of runs that have ended."""
    for run_id, state, n in rows:
        if n:
            yield Finding("run.rollouts", f"run {run_id}", f"{state}, with {n} open rollouts")


def check_tallies(rows: Iterable[TallyRow]) -> Findings:
    """What a run told last is what its rollouts add up to: each counted, and once."""
    for row in rows:
        for name, value in row.counted.items():
            told = row.told.get(name)
            if not _same(told, value):
                yield Finding(
                    "run.tally", f"run {row.run_id}", f"it told {name} {told}, rows say {value}"
                )


def check_rungs(rows: Iterable[RungRow]) -> Findings:
    """A rung is done with a verdict; a completed climb has no rung under way."""
    for row in rows:
        subject = f"climb {row.climb_id} rung {row.position}"
        if (row.state == "done") != bool(row.verdict):
            yield Finding("climb.rungs", subject, f"{row.state} with verdict {row.verdict!r}")
        if row.climb_state in ("completed", "failed", "cancelled") and row.state == "running":
            yield Finding("climb.rungs", subject, f"it runs, and the climb is {row.climb_state}")


def check_steps(rows: Iterable[StepRow]) -> Findings:
    """Steps of a training are told once each, in order. Rows by training and sequence."""
    training_id, last = 0, 0
    for row in rows:
        if row.training_id != training_id:
            training_id, last = row.training_id, 0
        subject = f"training {row.training_id}"
        if row.step != last + 1:
            yield Finding("training.steps", subject, f"step {row.step} after step {last}")
        if row.step > row.total:
            yield Finding("training.steps", subject, f"step {row.step}, and {row.total} are done")
        last = row.step


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, int | float) and isinstance(right, int | float):
        return abs(left - right) <= 1e-9 * max(1.0, abs(left), abs(right))
    return bool(left == right)
