"""The comparison page's figures: cards of criteria, costs, a map of all tasks. Pure.

A delta never stands without its interval, and the words are those of the sealed test: `better` and
`regressed` need an interval on one side of zero, below the coverage floor there is no verdict.
Of a penalty criterion less is better; its words are turned round, its numbers are not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from optimizer.statistics import PairedResult
from optimizer.statistics.pass_at_k import PassAtK, ks_for, pass_at_k
from orchestrator.runs.comparison.table import (
    CellState,
    Contrast,
    Fact,
    Mark,
    TaskRow,
    contrast,
)
from orchestrator.searches.verdicts import paired_verdict
from orchestrator.web.search_figures import EffectSpan, effect_spans

TURNED = {"better": "regressed", "regressed": "better"}
Z = 1.96 + 0.84
"""Two-sided 95 %, and 80 % power."""
MOST_NAMED = 100_000
"""A difference that needs more tasks than that is called too small to decide."""


@dataclass(frozen=True)
class Line:
    """One side against the baseline."""

    side: int
    contrast: Contrast
    verdict: str
    better: int
    """Tasks."""
    worse: int
    span: EffectSpan | None
    test: str
    """Name of the exact test; empty without one."""
    p: float | None
    needed: int | None
    """Tasks that would decide a difference of this size; None where it is decided."""

    @property
    def paired(self) -> PairedResult:
        return self.contrast.paired

    @property
    def words(self) -> str:
        return {
            "better": "better",
            "regressed": "worse",
            "inconclusive": "no clear difference",
            "infrastructure": "no verdict: too few scored",
        }[self.verdict]

    @property
    def arrow(self) -> str:
        mean = self.paired.mean or 0.0
        return "up" if mean > 0 else "down" if mean < 0 else "approx"


@dataclass(frozen=True)
class Card:
    id: str
    name: str
    is_negative: bool
    note: str
    """Why its numbers may not be comparable; empty when there is no reason."""
    lines: Sequence[Line]

    @property
    def is_empty(self) -> bool:
        return all(line.paired.mean is None for line in self.lines)


@dataclass(frozen=True)
class Criterion:
    id: str
    name: str
    is_negative: bool
    note: str = ""


def score_card(rows: Sequence[TaskRow], n_sides: int) -> Card:
    contrasts = [contrast(rows, side) for side in range(1, n_sides)]
    return _card(Criterion("", "Score", is_negative=False), contrasts)


def criterion_cards(
    rows: Sequence[TaskRow],
    n_sides: int,
    criteria: Sequence[Criterion],
    marks: Mapping[str, Mapping[int, Mark]],
) -> list[Card]:
    """In the given order; criteria without any verdict are left out."""
    cards = []
    for criterion in criteria:
        given = marks.get(criterion.id)
        if not given:
            continue

        def mark_of(fact: Fact, given: Mapping[int, Mark] = given) -> Mark:
            # Without a verdict the rollout did not get so far: its own state says why.
            state = fact.state if fact.state != "scored" else "not_applicable"
            return given.get(fact.rollout, Mark(state, None))

        contrasts = [contrast(rows, side, mark_of) for side in range(1, n_sides)]
        cards.append(_card(criterion, contrasts))
    return cards


def _card(criterion: Criterion, contrasts: Sequence[Contrast]) -> Card:
    drawn = [c.paired for c in contrasts if c.paired.mean is not None]
    spans = iter(effect_spans([(p.mean or 0.0, p.low or 0.0, p.high or 0.0) for p in drawn]))
    lines = [
        _line(
            at, each, criterion.is_negative, next(spans) if each.paired.mean is not None else None
        )
        for at, each in enumerate(contrasts, start=1)
    ]
    return Card(criterion.id, criterion.name, criterion.is_negative, criterion.note, lines)


def _line(side: int, found: Contrast, is_negative: bool, span: EffectSpan | None) -> Line:
    paired = found.paired
    verdict = paired_verdict(paired)
    wins, losses = paired.sign_test.wins, paired.sign_test.losses
    if is_negative:
        verdict, wins, losses = TURNED.get(verdict, verdict), losses, wins
        span = None if span is None else replace(span, is_up=not span.is_up)
    test, p = _test(paired)
    needed = _needed(paired) if verdict == "inconclusive" else None
    return Line(side, found, verdict, wins, losses, span, test, p, needed)


def _test(paired: PairedResult) -> tuple[str, float | None]:
    """McNemar's where scores are pass or fail, else sign flips, else the sign test; all exact."""
    if not paired.units:
        return "", None
    if paired.mcnemar is not None:
        return "McNemar, exact", paired.mcnemar.two_sided
    if paired.sign_flip is not None:
        return "sign flips, exact", paired.sign_flip.two_sided
    return "sign test, exact", paired.sign_test.two_sided


def _needed(paired: PairedResult) -> int | None:
    """Tasks for 80 % power at the spread and the difference that were seen."""
    if not paired.mean or not paired.sd:
        return None
    needed = math.ceil((Z * paired.sd / paired.mean) ** 2)
    return needed if paired.units < needed <= MOST_NAMED else None


# --- each side by itself ----------------------------------------------------------------------


@dataclass(frozen=True)
class Measures:
    """Of one side over the shown tasks."""

    mean: float | None
    scored: int
    errored: int
    not_applicable: int
    cancelled: int
    open: int
    passes: Sequence[PassAtK]
    tokens: int | None
    """Mean of the rollouts that have ended, like the rest."""
    cost_usd: float
    cost_each: float | None
    latency_median: float | None
    latency_high: float | None
    """90th percentile."""
    cost_ratio: float | None = None
    """Of a rollout's cost to the baseline's; None where that is free."""
    latency_ratio: float | None = None


def measures(rows: Sequence[TaskRow], n_sides: int) -> list[Measures]:
    ks = ks_for(len(cell.scores) for row in rows for cell in row.cells)
    found = [_measures([row.cells[side].facts for row in rows], ks) for side in range(n_sides)]
    base = found[0]
    return [base, *(_with_ratios(each, base) for each in found[1:])]


def _measures(tasks: Sequence[Sequence[Fact]], ks: Sequence[int]) -> Measures:
    facts = [fact for task in tasks for fact in task]
    scores = [fact.score for fact in facts if fact.score is not None]
    ended = [f for f in facts if f.state in ("scored", "errored", "not_applicable")]
    latencies = sorted(f.latency_s for f in ended if f.latency_s is not None)
    counts = []
    for task in tasks:
        own = [fact.score for fact in task if fact.score is not None]
        counts.append((len(own), sum(score >= 0.5 for score in own)))

    def number(*states: str) -> int:
        return sum(fact.state in states for fact in facts)

    return Measures(
        mean=fmean(scores) if scores else None,
        scored=len(scores),
        errored=number("errored"),
        not_applicable=number("not_applicable"),
        cancelled=number("cancelled"),
        open=number("pending", "running", "judging"),
        passes=[pass_at_k(counts, k) for k in ks],
        tokens=round(fmean(f.tokens for f in ended)) if ended else None,
        cost_usd=sum(fact.cost_usd for fact in facts),
        cost_each=fmean(f.cost_usd for f in ended) if ended else None,
        latency_median=median(latencies) if latencies else None,
        latency_high=latencies[math.ceil(0.9 * len(latencies)) - 1] if latencies else None,
    )


def _with_ratios(own: Measures, base: Measures) -> Measures:
    def ratio(mine: float | None, theirs: float | None) -> float | None:
        return mine / theirs if mine is not None and theirs else None

    return Measures(
        **{
            **vars(own),
            "cost_ratio": ratio(own.cost_each, base.cost_each),
            "latency_ratio": ratio(own.latency_median, base.latency_median),
        }
    )


# --- families ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class FamilyRow:
    name: str
    tasks: int
    means: Sequence[float | None]
    """Of each side, over tasks."""
    deltas: Sequence[float | None]
    """Mean difference of the tasks that both have; None for the baseline."""
    better: Sequence[int]
    worse: Sequence[int]


def families(rows: Sequence[TaskRow], n_sides: int) -> list[FamilyRow]:
    grouped: dict[str, list[TaskRow]] = defaultdict(list)
    for row in rows:
        grouped[row.family].append(row)
    return [_family(name, grouped[name], n_sides) for name in sorted(grouped)]


def _family(name: str, rows: Sequence[TaskRow], n_sides: int) -> FamilyRow:
    means: list[float | None] = []
    deltas: list[float | None] = []
    better, worse = [], []
    for side in range(n_sides):
        scores = [s for row in rows if (s := row.cells[side].score) is not None]
        moved = [d for row in rows if (d := row.deltas[side]) is not None]
        means.append(fmean(scores) if scores else None)
        deltas.append(fmean(moved) if moved else None)
        better.append(sum(d > 0 for d in moved))
        worse.append(sum(d < 0 for d in moved))
    return FamilyRow(name, len(rows), means, deltas, better, worse)


# --- the map of all tasks ---------------------------------------------------------------------

MAP_WIDTH = 960
MAP_MOST = 1_000
"""Tasks on it; more cannot be told apart."""
LABEL = 86


@dataclass(frozen=True)
class MapRow:
    side: int
    y: int
    paths: Sequence[tuple[str, str]]
    """Look and path of all cells of that look: `s0` … `s4` by score, or a state."""
    summary: str


@dataclass(frozen=True)
class TaskMap:
    width: int
    height: int
    label: int
    rows: Sequence[MapRow]
    tasks: int


ROW_STEP = 20
CELL_HEIGHT = 15


def task_map(rows: Sequence[TaskRow], names: Sequence[str]) -> TaskMap | None:
    """Sides × tasks at a glance, tasks in the order of the table. None for none or too many."""
    if not rows or len(rows) > MAP_MOST:
        return None
    step = max(1.0, min(14.0, (MAP_WIDTH - LABEL) / len(rows)))
    width = max(0.8, step - (1.5 if step > 4 else 0.4))
    found = []
    for side, name in enumerate(names):
        paths: dict[str, list[str]] = defaultdict(list)
        for at, row in enumerate(rows):
            look = look_of(row, side)
            if look != CellState.ABSENT:
                x = f"{LABEL + at * step:.1f}".rstrip("0").rstrip(".")
                paths[look].append(
                    f"M{x} {side * ROW_STEP}h{width:.1f}v{CELL_HEIGHT}h-{width:.1f}z"
                )
        counts = ", ".join(f"{len(cells)} {_look_word(look)}" for look, cells in paths.items())
        found.append(
            MapRow(
                side,
                side * ROW_STEP,
                [(look, "".join(cells)) for look, cells in paths.items()],
                f"{name}: {counts or 'no task'}",
            )
        )
    return TaskMap(
        width=math.ceil(LABEL + len(rows) * step),
        height=len(names) * ROW_STEP,
        label=LABEL,
        rows=found,
        tasks=len(rows),
    )


def look_of(row: TaskRow, side: int) -> str:
    """`s0` (0) … `s4` (1) for a score, else the state."""
    cell = row.cells[side]
    if cell.score is None:
        return cell.state.value
    return f"s{min(4, max(0, math.floor(cell.score * 5)))}"


def _look_word(look: str) -> str:
    if look.startswith("s") and look[1:].isdigit():
        low = int(look[1:]) / 5
        return f"scored {low:.1f} to {low + 0.2:.1f}"
    return look.replace("_", " ")
