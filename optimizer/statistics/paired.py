"""Paired comparison of two sides on the same tasks: interval and exact tests.

The unit is the task: replicates of a task are averaged first, because treating them as independent
makes the interval too narrow when tasks differ. Pairs without two scores are left out and counted.

- The interval is the paired percentile bootstrap of the mean with at least 10,000 resamples.
- Tests are exact: sign test, sign-flip test, and McNemar's where scores are pass/fail.
- An interval of width zero (all units tied) is flagged: it proves nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, comb, lcm

from optimizer.errors import StatisticsDomain
from optimizer.statistics.betting import checked_difference
from optimizer.statistics.betting import decimal as meant
from optimizer.statistics.lattice import MAX_BITS, TooWide, flipped_sums, on_lattice, resampled_sums
from optimizer.statistics.quick import FEWEST_UNITS, Interval, quick_intervals

RESAMPLES = 10_000
SEED = 20240117
LEVELS = (90, 95)


@dataclass(frozen=True)
class Pair:
    """Both sides' scores on one task and replicate; None where there is no score."""

    task: str
    base: float | None
    candidate: float | None


@dataclass(frozen=True)
class SignTest:
    wins: int
    losses: int
    ties: int
    one_sided: float
    """P(this many wins or more) if wins and losses were equally likely."""
    two_sided: float


@dataclass(frozen=True)
class SignFlip:
    one_sided: float
    two_sided: float


@dataclass(frozen=True)
class McNemar:
    both_pass: int
    only_candidate: int
    only_base: int
    both_fail: int
    one_sided: float
    two_sided: float


@dataclass(frozen=True)
class PairedResult:
    units: int
    """Tasks with at least one complete pair."""
    pairs: int
    """Complete pairs."""
    scheduled: int
    coverage: float
    """Complete pairs ÷ scheduled pairs; 1 when nothing was scheduled."""
    mean: float | None
    """Mean difference, candidate minus base; None without a unit."""
    sd: float | None
    """Unbiased standard deviation of the units; None below two."""
    standard_error: float | None
    intervals: Mapping[int, Interval]
    """Percent -> central interval of the mean; empty without a unit."""
    sign_test: SignTest
    sign_flip: SignFlip | None
    """None where the scores are too finely graded to count exactly."""
    mcnemar: McNemar | None
    """None unless scores are pass/fail and each task has one pair."""
    is_degenerate: bool
    """All units are equal: the interval has width zero and proves nothing."""

    @property
    def low(self) -> float | None:
        return self.intervals[95][0] if self.intervals else None

    @property
    def high(self) -> float | None:
        return self.intervals[95][1] if self.intervals else None


def compare(
    pairs: Iterable[Pair],
    *,
    seed: int = SEED,
    resamples: int | None = RESAMPLES,
    most_bits: int = MAX_BITS,
) -> PairedResult:
    """Everything there is to say on a set of pairs.

    `resamples`: None takes the intervals from `optimizer.statistics.quick`, which draws nothing;
    for who cannot wait, and never for a claim that is kept. `most_bits` is what the sign flips may
    take; finer data have none. Raises StatisticsDomain for scores not in 0 to 1.
    """
    scheduled = list(pairs)
    complete = [pair for pair in scheduled if pair.base is not None and pair.candidate is not None]
    units = units_by_task(complete)
    single = len(units) == len(complete)
    n = len(units)
    mean = float(_mean(units)) if n else None
    sd = _sd(units)
    return PairedResult(
        units=n,
        pairs=len(complete),
        scheduled=len(scheduled),
        coverage=len(complete) / len(scheduled) if scheduled else 1.0,
        mean=mean,
        sd=sd,
        standard_error=None if sd is None else sd / math.sqrt(n),
        intervals=_intervals(units, seed, resamples),
        sign_test=sign_test(units),
        sign_flip=sign_flip(units, most_bits=most_bits),
        mcnemar=mcnemar(complete) if single else None,
        is_degenerate=len(set(units)) <= 1,
    )


def _intervals(units: Sequence[Fraction], seed: int, resamples: int | None) -> dict[int, Interval]:
    if not units:
        return {}
    if resamples is None and len(units) >= FEWEST_UNITS:
        return quick_intervals(units, list(_levels()), seed=seed)
    return bootstrap(units, seed=seed, resamples=resamples or RESAMPLES)


def units_by_task(pairs: Iterable[Pair]) -> list[Fraction]:
    """Mean difference per task, in order of first appearance; incomplete pairs are left out.

    Decimals are taken as what they say (0.1 is one tenth), so that equal means are equal.
    """
    by_task: dict[str, list[Fraction]] = {}
    for pair in pairs:
        if pair.base is None or pair.candidate is None:
            continue
        for score in (pair.base, pair.candidate):
            if not 0.0 <= score <= 1.0:  # also false for NaN
                raise StatisticsDomain(f"a score lies in 0 to 1, got {score!r}")
        checked_difference(pair.candidate - pair.base)
        by_task.setdefault(pair.task, []).append(_difference(pair.base, pair.candidate))
    return [_mean(values) for values in by_task.values()]


@lru_cache(maxsize=65_536)
def _difference(base: float, candidate: float) -> Fraction:
    return meant(candidate) - meant(base)


def _mean(values: Sequence[Fraction]) -> Fraction:
    """Over one denominator: adding fractions one by one would shorten each sum."""
    if len(values) == 1:
        return values[0]
    denominator = lcm(*(value.denominator for value in values))
    total = sum(value.numerator * (denominator // value.denominator) for value in values)
    return Fraction(total, denominator * len(values))


def bootstrap(
    units: Sequence[Fraction], *, seed: int = SEED, resamples: int = RESAMPLES
) -> dict[int, Interval]:
    """Central percentile intervals of the mean by resampling, MT19937 seeded with `seed`.

    Index = floor(random() · n), drawn unit by unit; percentile = element ceil(level · resamples)
    of the sorted means, counted from 1. Sums are exact.
    """
    lattice = on_lattice(units)
    n, points = len(units), lattice.points
    draw = random.Random(seed).random
    sums = sorted(sum([points[int(draw() * n)] for _ in range(n)]) for _ in range(resamples))

    def percentile(level: Fraction) -> float:
        index = max(1, ceil(level * resamples))
        return float(Fraction(sums[index - 1], lattice.denominator * n))

    return {level: (percentile(low), percentile(high)) for level, low, high in _levels()}


def bootstrap_exact(units: Sequence[Fraction]) -> dict[int, Interval]:
    """The same over all n**n resamples. A percentile is the smallest value whose cumulative
    probability is at least the level. Raises TooWide for very finely graded data.
    """
    lattice = on_lattice(units)
    n = len(units)
    counts = resampled_sums(lattice.points)
    total = n**n

    def percentile(level: Fraction) -> float:
        cumulative = 0
        for value, count in counts.items():
            cumulative += count
            if cumulative >= level * total:
                return float(Fraction(value, lattice.denominator * n))
        raise AssertionError("levels are below 1")

    return {level: (percentile(low), percentile(high)) for level, low, high in _levels()}


def sign_test(units: Sequence[Fraction]) -> SignTest:
    wins, losses = sum(unit > 0 for unit in units), sum(unit < 0 for unit in units)
    return SignTest(wins, losses, len(units) - wins - losses, *_binomial(wins, losses))


def sign_flip(units: Sequence[Fraction], *, most_bits: int = MAX_BITS) -> SignFlip | None:
    """Permutation of the units' signs; None where the scores are too finely graded."""
    lattice = on_lattice(units)
    try:
        counts = flipped_sums(lattice.points, most_bits=most_bits)
    except TooWide:
        return None
    observed, total = sum(lattice.points), 2 ** len(units)
    above = sum(count for value, count in counts.items() if value >= observed)
    beyond = sum(count for value, count in counts.items() if abs(value) >= abs(observed))
    return SignFlip(float(Fraction(above, total)), float(Fraction(beyond, total)))


def mcnemar(complete: Sequence[Pair]) -> McNemar | None:
    """From the two discordant cells; None unless all scores are 0 or 1."""
    cells = [(pair.base, pair.candidate) for pair in complete]
    if not cells or any(score not in (0.0, 1.0) for cell in cells for score in cell):
        return None
    gained, lost = cells.count((0.0, 1.0)), cells.count((1.0, 0.0))
    return McNemar(
        cells.count((1.0, 1.0)), gained, lost, cells.count((0.0, 0.0)), *_binomial(gained, lost)
    )


def _binomial(wins: int, losses: int) -> tuple[float, float]:
    n = wins + losses

    def at_least(k: int) -> Fraction:
        return Fraction(sum(comb(n, i) for i in range(k, n + 1)), 2**n)

    return float(at_least(wins)), float(min(Fraction(1), 2 * at_least(max(wins, losses))))


def _sd(units: Sequence[Fraction]) -> float | None:
    n = len(units)
    if n < 2:
        return None
    lattice = on_lattice(units)
    total, squares = sum(lattice.points), sum(point * point for point in lattice.points)
    return math.sqrt(Fraction(n * squares - total * total, n * (n - 1) * lattice.denominator**2))


def _levels() -> Iterable[tuple[int, Fraction, Fraction]]:
    for level in LEVELS:
        tail = Fraction(100 - level, 200)
        yield level, tail, 1 - tail
