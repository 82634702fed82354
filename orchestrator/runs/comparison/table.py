"""Tasks × sides: cells with four states, and what changed against the baseline. Pure.

A task is the same on two sides when environment and key agree, whatever the version. A difference
of a task is the mean over the replicates that both sides have scored; a task which only one side
has is no part of any difference and is counted apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from statistics import fmean

from optimizer.statistics import Pair, PairedResult, compare

PASS = 0.5
"""Scored at or above it: passed."""
FLIP_BITS = 12_000_000
"""Sign flips that a page waits for; finer scores are left to the sign test."""

TaskId = tuple[int, str]
"""Environment and key."""


class CellState(StrEnum):
    SCORED = "scored"
    """At least one attempt has a score."""
    PENDING = "pending"
    """No score yet, and one may come."""
    ERRORED = "errored"
    NOT_APPLICABLE = "not_applicable"
    CANCELLED = "cancelled"
    ABSENT = "absent"
    """Not planned on this side."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One rollout, as much of it as a table needs."""

    rollout: int
    task: TaskId
    family: str
    split: str
    replicate: int
    state: str
    """`orchestrator.runs.models.RolloutState`"""
    score: float | None
    tokens: int = 0
    cost_usd: float = 0.0
    latency_s: float | None = None


@dataclass(frozen=True)
class Cell:
    """A task on one side."""

    facts: Sequence[Fact] = ()

    @property
    def scores(self) -> list[float]:
        return [fact.score for fact in self.facts if fact.score is not None]

    @property
    def score(self) -> float | None:
        """Mean of the scored attempts."""
        return fmean(self.scores) if self.scores else None

    @property
    def state(self) -> CellState:
        if not self.facts:
            return CellState.ABSENT
        if self.scores:
            return CellState.SCORED
        states = {fact.state for fact in self.facts}
        for state in (CellState.ERRORED, CellState.NOT_APPLICABLE, CellState.CANCELLED):
            if states == {state.value}:
                return state
        if states & {"pending", "running", "judging"}:
            return CellState.PENDING
        return CellState.ERRORED if "errored" in states else CellState.NOT_APPLICABLE

    @property
    def errored(self) -> int:
        return sum(fact.state == "errored" for fact in self.facts)

    @property
    def passed(self) -> int:
        return sum(score >= PASS for score in self.scores)


@dataclass(frozen=True)
class TaskRow:
    task: TaskId
    family: str
    split: str
    cells: Sequence[Cell]
    """In the order of the sides."""
    deltas: Sequence[float | None]
    """Against the first side, None where there is no pair; the first side's own is None."""

    @property
    def key(self) -> str:
        return self.task[1]

    @property
    def worst(self) -> float:
        """Most negative difference; infinity without any."""
        return min((d for d in self.deltas if d is not None), default=float("inf"))

    @property
    def best(self) -> float:
        return max((d for d in self.deltas if d is not None), default=float("-inf"))

    @property
    def differs(self) -> bool:
        """In a state, or in a score that both have."""
        first = self.cells[0]
        return any(
            cell.state != first.state or cell.score != first.score for cell in self.cells[1:]
        )


@dataclass(frozen=True)
class Contrast:
    """One side against the baseline, in the score or in one criterion."""

    paired: PairedResult
    base: float | None
    """Mean of the baseline over the complete pairs, task by task; the difference starts here."""
    other: float | None
    n_open: int
    """Pairs that are not at their end on some side."""
    n_na: int
    """Pairs that are not applicable on some side."""
    n_broken: int
    """Pairs that lack a score because a side errored or was cancelled."""


def tasks_by_side(sides: Sequence[Iterable[Fact]]) -> list[TaskRow]:
    """Rows in order of task. `sides[0]` is the baseline."""
    grid: dict[TaskId, list[list[Fact]]] = defaultdict(lambda: [[] for _ in sides])
    for place, facts in enumerate(sides):
        for fact in facts:
            grid[fact.task][place].append(fact)
    rows = []
    for task in sorted(grid):
        cells = [Cell(tuple(sorted(facts, key=lambda f: f.replicate))) for facts in grid[task]]
        some = next(fact for cell in cells for fact in cell.facts)
        deltas = [None, *(_delta(cells[0], cell) for cell in cells[1:])]
        rows.append(TaskRow(task, some.family, some.split, cells, deltas))
    return rows


def _delta(base: Cell, other: Cell) -> float | None:
    pairs = [
        (one.score, two.score)
        for one, two in _pairs(base, other)
        if one.score is not None and two.score is not None
    ]
    return fmean(two - one for one, two in pairs) if pairs else None


def _pairs(base: Cell, other: Cell) -> list[tuple[Fact, Fact]]:
    """Of the same replicate; where a side had several harnesses, each with each."""
    return [
        (one, two) for one in base.facts for two in other.facts if one.replicate == two.replicate
    ]


@dataclass(frozen=True, slots=True)
class Mark:
    """What is compared of a rollout: its state and number, in the score or in one criterion."""

    state: str
    value: float | None


def contrast(
    rows: Sequence[TaskRow],
    side: int,
    mark_of: Callable[[Fact], Mark] = lambda fact: Mark(fact.state, fact.score),
) -> Contrast:
    """Side number `side` against the first. Open and not applicable pairs count in no coverage."""
    pairs: list[Pair] = []
    n_open = n_na = n_broken = 0
    for row in rows:
        for one, two in _pairs(row.cells[0], row.cells[side]):
            marks = (mark_of(one), mark_of(two))
            states = {mark.state for mark in marks}
            if states & {"pending", "running", "judging"}:
                n_open += 1
            elif "not_applicable" in states:
                n_na += 1
            else:
                values = [mark.value for mark in marks]
                n_broken += None in values
                pairs.append(Pair(f"{row.task[0]}/{row.key}", *values))
    base, other = _means(pairs)
    return Contrast(_compared(tuple(pairs)), base, other, n_open, n_na, n_broken)


def _means(pairs: Sequence[Pair]) -> tuple[float | None, float | None]:
    by_task: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for pair in pairs:
        if pair.base is not None and pair.candidate is not None:
            by_task[pair.task].append((pair.base, pair.candidate))
    if not by_task:
        return None, None
    means = [
        each[0] if len(each) == 1 else (fmean(a for a, _ in each), fmean(b for _, b in each))
        for each in by_task.values()
    ]
    return fmean(one for one, _ in means), fmean(two for _, two in means)


@lru_cache(maxsize=256)
def _compared(pairs: tuple[Pair, ...]) -> PairedResult:
    """The same pairs are asked for by each look at a page; the answer is a function of them."""
    return compare(pairs, resamples=None, most_bits=FLIP_BITS)


@dataclass(frozen=True)
class Alone:
    """Tasks that one side only of a pair of sides has."""

    base: Sequence[str]
    other: Sequence[str]


def alone(rows: Sequence[TaskRow], side: int) -> Alone:
    return Alone(
        base=[r.key for r in rows if r.cells[0].facts and not r.cells[side].facts],
        other=[r.key for r in rows if r.cells[side].facts and not r.cells[0].facts],
    )
