"""What another rubric would say of past rollouts, against what their runs said. Pure.

A flip is a rollout that passed and fails now, or the other way round, each by the threshold of the
rubric that graded it. The difference of the means is over the rollouts that have both scores; its
interval resamples tasks, since rollouts of a task hang together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from rubrics.agreement.bootstrap import Interval, bootstrap_interval

TO_READ = 10
DRAWS = 1_000_000
"""Bounds the time of an interval: at most so many tasks are drawn, in at least 200 resamples."""
CHANGE = 1e-9
"""Below it two values are the same."""


@dataclass(frozen=True)
class Side:
    """One rubric's word on one rollout."""

    state: str
    score: float | None
    passes_at: float
    values: Mapping[str, float | None]
    """By criterion; None where it was not decided."""
    states: Mapping[str, str]
    reasons: Mapping[str, str]

    @property
    def is_passed(self) -> bool | None:
        return None if self.score is None else self.score >= self.passes_at


@dataclass(frozen=True)
class Pair:
    """One rollout under both."""

    rollout_id: int
    task: str
    replicate: int
    is_sealed: bool
    before: Side
    after: Side
    graded_by: str
    """The version that the run used."""

    @property
    def is_flip(self) -> bool:
        one, two = self.before.is_passed, self.after.is_passed
        return one is not None and two is not None and one is not two

    @property
    def change(self) -> float | None:
        if self.before.score is None or self.after.score is None:
            return None
        return self.after.score - self.before.score

    @property
    def criteria(self) -> list[str]:
        """Those whose word differs."""
        return [
            id
            for id in {**self.before.states, **self.after.states}
            if not _is_same(self.before, self.after, id)
        ]


@dataclass(frozen=True)
class CriterionChange:
    id: str
    name: str
    what: str
    """added, removed, changed, same"""
    n: int
    """Rollouts on which both have decided it."""
    n_changed: int
    mean_before: float | None
    mean_after: float | None
    n_errored_before: int
    n_errored_after: int


@dataclass(frozen=True)
class Comparison:
    n: int
    n_flipped: int
    n_to_pass: int
    n_to_fail: int
    n_up: int
    n_down: int
    n_both: int
    """Rollouts with a score under both."""
    n_only_before: int
    """Their score is lost."""
    n_only_after: int
    n_errored: int
    """Without a score now because something broke."""
    n_sealed: int
    mean_before: float | None
    mean_after: float | None
    """Both over the rollouts that have both scores."""
    difference: float | None
    interval: Interval | None
    criteria: Sequence[CriterionChange]
    flips: Sequence[Pair]
    """All rollouts whose word differs: flips first, then by how far the score moved."""
    to_read: Sequence[Pair]
    versions: Sequence[tuple[str, int]]
    """Which versions the rollouts were graded by, with counts."""

    @property
    def n_same(self) -> int:
        """Rollouts with the same score under both."""
        return self.n_both - self.n_up - self.n_down


def compare(pairs: Sequence[Pair], names: Mapping[str, str], same: frozenset[str]) -> Comparison:
    """`names`: of criteria by id, old and new; `same`: ids whose content did not change."""
    both = [pair for pair in pairs if pair.change is not None]
    flips = [pair for pair in both if pair.is_flip]
    moved = [pair for pair in pairs if _has_moved(pair)]
    moved.sort(key=_first)
    changes = [pair.change or 0.0 for pair in both]
    return Comparison(
        n=len(pairs),
        n_flipped=len(flips),
        n_to_pass=sum(pair.after.is_passed is True for pair in flips),
        n_to_fail=sum(pair.after.is_passed is False for pair in flips),
        n_up=sum(change > CHANGE for change in changes),
        n_down=sum(change < -CHANGE for change in changes),
        n_both=len(both),
        n_only_before=sum(p.before.score is not None and p.after.score is None for p in pairs),
        n_only_after=sum(p.before.score is None and p.after.score is not None for p in pairs),
        n_errored=sum(pair.after.state == "errored" for pair in pairs),
        n_sealed=sum(pair.is_sealed for pair in pairs),
        mean_before=fmean(p.before.score or 0.0 for p in both) if both else None,
        mean_after=fmean(p.after.score or 0.0 for p in both) if both else None,
        difference=fmean(changes) if both else None,
        interval=_interval(both),
        criteria=[_criterion(id, names[id], pairs, same) for id in names],
        flips=moved,
        to_read=_to_read(moved),
        versions=Counter(pair.graded_by for pair in pairs).most_common(),
    )


def _has_moved(pair: Pair) -> bool:
    if pair.before.state != pair.after.state:
        return True
    return pair.change is not None and abs(pair.change) > CHANGE


def _first(pair: Pair) -> tuple[bool, bool, float, int]:
    lost = pair.before.score is not None and pair.after.score is None
    return (not pair.is_flip, not lost, -abs(pair.change or 0.0), pair.rollout_id)


def _to_read(moved: Sequence[Pair]) -> list[Pair]:
    """Some of each direction where there are both; one of each task before a second of one."""
    groups: dict[str, list[Pair]] = defaultdict(list)
    seen: Counter[str] = Counter()
    ordered = []
    for pair in moved:
        ordered.append((seen[pair.task], pair))
        seen[pair.task] += 1
    ordered.sort(key=lambda item: (not item[1].is_flip, item[0]))
    for _, pair in ordered:
        change = pair.change
        groups["lost" if change is None else "up" if change > 0 else "down"].append(pair)
    found: list[Pair] = []
    while len(found) < TO_READ and any(groups.values()):
        for name in ("down", "up", "lost"):
            if groups[name] and len(found) < TO_READ:
                found.append(groups[name].pop(0))
    return found


def _interval(both: Sequence[Pair]) -> Interval | None:
    by_task: dict[str, list[float]] = defaultdict(list)
    for pair in both:
        by_task[pair.task].append(pair.change or 0.0)
    sums = [(sum(changes), len(changes)) for changes in by_task.values()]

    def mean(drawn: Sequence[tuple[float, int]]) -> float:
        return sum(total for total, _ in drawn) / sum(n for _, n in drawn)

    return bootstrap_interval(sums, mean, resamples=max(200, min(1000, DRAWS // max(1, len(sums)))))


def _criterion(id: str, name: str, pairs: Sequence[Pair], same: frozenset[str]) -> CriterionChange:
    had = any(id in pair.before.states for pair in pairs)
    has = any(id in pair.after.states for pair in pairs)
    decided = [
        (one, two)
        for pair in pairs
        if (one := pair.before.values.get(id)) is not None
        and (two := pair.after.values.get(id)) is not None
    ]
    before = [v for pair in pairs if (v := pair.before.values.get(id)) is not None]
    after = [v for pair in pairs if (v := pair.after.values.get(id)) is not None]
    if had and has:
        what = "same" if id in same else "changed"
        before, after = [one for one, _ in decided], [two for _, two in decided]
    else:
        what = "added" if has else "removed"
    return CriterionChange(
        id=id,
        name=name,
        what=what,
        n=len(decided),
        n_changed=sum(abs(one - two) > CHANGE for one, two in decided),
        mean_before=fmean(before) if before else None,
        mean_after=fmean(after) if after else None,
        n_errored_before=sum(pair.before.states.get(id) == "errored" for pair in pairs),
        n_errored_after=sum(pair.after.states.get(id) == "errored" for pair in pairs),
    )


def _is_same(one: Side, two: Side, id: str) -> bool:
    if one.states.get(id) != two.states.get(id):
        return False
    before, after = one.values.get(id), two.values.get(id)
    return before == after or (
        before is not None and after is not None and abs(before - after) <= CHANGE
    )
