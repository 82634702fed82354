"""Whatever was started ends once: runs, climbs, searches, gates, trainings, re-grades."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from orchestrator.invariants.finding import Finding, Findings


class EndRow(NamedTuple):
    """Something with a log, and the ends that its log tells."""

    kind: str
    """run, climb, search, gate or training."""
    id: int
    state: str
    is_ended: bool
    ends: Sequence[Mapping[str, Any]]
    """Payloads of the events that tell of an end, in order."""


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
        if not row.is_ended:
            if row.ends:
                yield Finding("owner.ended", subject, f"it is {row.state}, and its log has an end")
            continue
        if len(row.ends) != 1:
            yield Finding("owner.ended", subject, f"{row.state}; its log has {len(row.ends)} ends")
        elif row.ends[0].get("state") != row.state:
            said = row.ends[0].get("state")
            yield Finding("owner.ended", subject, f"the row says {row.state}, the log {said}")


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
