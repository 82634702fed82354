"""What the pairs of a gate say at one look: the test, its interval, what it could see. Pure.

The unit is the task: its difference is the mean over its replicates of candidate minus baseline,
because repeats of one task are not independent of one another. The differences of the tasks are
tested by flipping their signs, which is exact at any number of tasks as long as a change that does
nothing is as likely to win a task as to lose it (Fisher, "The Design of Experiments", 1935; Good,
"Permutation, Parametric, and Bootstrap Tests of Hypotheses", 2005). The interval holds the
differences that the same test does not refuse at the level of this look, so that it leaves zero
out where the test decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist, fmean, variance

from optimizer.statistics.lattice import flipped_sums, on_lattice
from optimizer.statistics.paired import Pair, units_by_task

FINEST = 12_000
"""Steps of all flips together. Finer differences are rounded to that, which keeps the test exact:
rounding treats both directions alike."""
MOST_COUNTED = 200
"""Tasks up to which flips are counted; sums of more are taken to be normal."""
FINE = 10_000
"""Parts of a score to which differences are rounded where nothing is counted."""
ALWAYS_AT = 3 / 32
"""A sum with random signs is at least its standard deviation with this probability or more,
whatever its terms (Dvořák & Klein, "Probability mass of Rademacher sums beyond one standard
deviation", 2022), so that nothing below it need be counted.
"""
MOST_MORE = 1_000_000
"""More rollouts or tasks than that are no advice."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Measured:
    tasks: int
    """With at least one complete pair."""
    pairs: int
    """Complete ones."""
    scheduled: int
    lost_base: int
    """Scheduled rollouts of the baseline without a score."""
    lost_candidate: int
    mean: float | None
    """Mean over tasks of candidate minus baseline; None without a pair."""
    base_mean: float | None
    """Mean over tasks, of the same pairs."""
    candidate_mean: float | None

    @property
    def coverage(self) -> float:
        return self.pairs / self.scheduled if self.scheduled else 0.0


@dataclass(frozen=True)
class Needs:
    """What would decide if the truth were what was seen; None where that is no way."""

    more_rollouts: int | None = None
    """Of both sides, on the same tasks."""
    more_tasks: int | None = None
    """As many repeats each as now: where more repeats of these tasks cannot help."""
    visible: float | None = None
    """The smallest difference that as many pairs find with the policy's power."""


def measure(pairs: Sequence[Pair]) -> Measured:
    """Raises StatisticsDomain for scores not in 0 to 1."""
    complete = [pair for pair in pairs if pair.base is not None and pair.candidate is not None]
    units = units_by_task(complete)
    return Measured(
        tasks=len(units),
        pairs=len(complete),
        scheduled=len(pairs),
        lost_base=sum(pair.base is None for pair in pairs),
        lost_candidate=sum(pair.candidate is None for pair in pairs),
        mean=float(sum(units) / len(units)) if units else None,
        base_mean=_mean(complete, lambda pair: pair.base),
        candidate_mean=_mean(complete, lambda pair: pair.candidate),
    )


@dataclass(frozen=True)
class Units:
    """The differences of tasks, one each."""

    values: tuple[Fraction, ...]
    repeats: int
    """Pairs of a task, at most."""

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Units:
        """Raises StatisticsDomain for scores not in 0 to 1."""
        by_task = _differences(pairs)
        most = max((len(values) for values in by_task), default=0)
        return cls(tuple(units_by_task(pairs)), most)

    def turned(self) -> Units:
        """With the sides changed."""
        return Units(tuple(-value for value in self.values), self.repeats)


def p_above(units: Units, than: Fraction) -> float:
    """One-sided p-value of "the mean difference is not above `than`"."""
    values = units.values if than == 0 else _with_doubt(units)
    return _tail(_rounded([value - than for value in values]))


def p_below(units: Units, than: Fraction) -> float:
    """One-sided p-value of "the mean difference is not below `than`"."""
    return p_above(units.turned(), -than)


def is_above(units: Units, than: Fraction, level: float) -> bool:
    """Whether `p_above` is at or below the level; cheap where it is far from it."""
    values = units.values if than == 0 else _with_doubt(units)
    return _is_beyond(_rounded([value - than for value in values]), level)


def is_below(units: Units, than: Fraction, level: float) -> bool:
    return is_above(units.turned(), -than, level)


def interval(units: Units, level: float) -> tuple[float, float]:
    """The differences that neither test refuses at the one-sided level, by bisection."""
    doubted = _with_doubt(units)
    steps = _steps(len(doubted))
    points = [_nearest(unit * steps) for unit in doubted]
    mean = sum(points) / len(points)

    def end(sign: int) -> float:
        """The lower end, and with the sign turned the upper one."""
        shift = _edge(
            -steps,
            math.floor(sign * mean),
            lambda shift: _is_beyond([sign * point - shift for point in points], level),
        )
        # Whoever refuses "not above zero" refuses everything below it.
        is_beyond = is_above(units if sign > 0 else units.turned(), Fraction(0), level)
        return max(0.0, shift / steps) if is_beyond else shift / steps

    return (end(1), -end(-1))


def needs(pairs: Sequence[Pair], *, beyond: float, alpha: float, power: float) -> Needs:
    """`beyond`: the part of the difference that is above the margin, 0 where none is.

    By the normal approximation, with the spread between tasks and between repeats of a task as
    they were seen; without repeats all of it counts as that of repeats.
    """
    by_task = _differences(pairs)
    n = len(by_task)
    units = [fmean(values) for values in by_task]
    if n < 2 or not (spread := variance(units)):
        return Needs()
    repeats = n / sum(1 / len(values) for values in by_task)
    several = [values for values in by_task if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    within = (
        sum(variance(values) * (len(values) - 1) for values in several) / freedom
        if freedom
        else spread * repeats
    )
    between = max(0.0, spread - within / repeats)
    reach = _NORMAL.inv_cdf(1 - alpha / 2) + _NORMAL.inv_cdf(power)
    visible = reach * math.sqrt(spread / n)
    if beyond <= 0.0:
        return Needs(visible=visible)
    wanted = (beyond / reach) ** 2
    room = n * wanted - between
    if room > 0:
        more = math.ceil(2 * n * max(1.0, within / room - repeats))
        return Needs(_sane(more), None, visible)
    return Needs(None, _sane(math.ceil(spread / wanted) - n), visible)


def _sane(number: int) -> int | None:
    return max(1, number) if number <= MOST_MORE else None


def _differences(pairs: Sequence[Pair]) -> list[list[float]]:
    found: dict[str, list[float]] = {}
    for pair in pairs:
        if pair.base is not None and pair.candidate is not None:
            found.setdefault(pair.task, []).append(pair.candidate - pair.base)
    return list(found.values())


def _mean(complete: Sequence[Pair], of: Callable[[Pair], float | None]) -> float | None:
    by_task: dict[str, list[float]] = {}
    for pair in complete:
        value = of(pair)
        assert value is not None, "only complete pairs come here"
        by_task.setdefault(pair.task, []).append(value)
    return fmean(fmean(values) for values in by_task.values()) if by_task else None


def _with_doubt(units: Units) -> list[Fraction]:
    """With two tasks more that won one pair, and two that lost one.

    Around zero a change that does nothing is symmetric whatever the scores are; around another
    difference pass/fail scores are not, and with only ties the flips would be sure of anything.
    This is the correction of Agresti & Min ("Simple improved confidence intervals for comparing
    matched proportions", 2005), twice as strong since levels of looks are small.
    """
    one = Fraction(1, units.repeats)
    return [*units.values, one, one, -one, -one]


def _steps(n: int) -> int:
    """Parts of a score, for so many tasks."""
    return FINE if n > MOST_COUNTED else FINEST // max(1, n)


def _rounded(values: Sequence[Fraction]) -> list[int]:
    lattice = on_lattice(values)
    if sum(map(abs, lattice.points)) <= FINEST:
        return list(lattice.points)
    each = _steps(len(values))
    return [_nearest(value * each) for value in values]


def _nearest(value: Fraction) -> int:
    """To the nearest whole number, halves away from zero: the same for both signs."""
    size = math.floor(abs(value) + Fraction(1, 2))
    return size if value >= 0 else -size


def _is_beyond(points: Sequence[int], level: float) -> bool:
    observed = sum(points)
    if level < ALWAYS_AT and observed * abs(observed) <= sum(point * point for point in points):
        return False
    return _tail(points) <= level


def _tail(points: Sequence[int]) -> float:
    """Share of all choices of signs whose sum is at least that of `points`; 1 without any."""
    observed = sum(points)
    if len(points) > MOST_COUNTED and any(points):
        spread = math.sqrt(sum(point * point for point in points))
        # A sum moves by twice what all its terms are multiples of: half of that is to be counted.
        least = observed - math.gcd(*points)
        return 0.5 * math.erfc(least / spread / math.sqrt(2.0))
    counts = flipped_sums(points)
    above = sum(count for value, count in counts.items() if value >= observed)
    return float(Fraction(above, 2 ** len(points)))


def _edge(low: int, high: int, is_refused: Callable[[int], bool]) -> int:
    """The highest number from `low` on up to which all are refused; `low` where none is."""
    if not is_refused(low):
        return low
    while high - low > 1:
        middle = (low + high) // 2
        if is_refused(middle):
            low = middle
        else:
            high = middle
    return low
