"""The bootstrap's intervals without its resamples, for a page that shows fifty of them at once.

The mean of a resample is a mean of independent draws from the units, so its distribution is known
through its cumulant generating function. The tail is taken from that by the saddlepoint
approximation of Lugannani and Rice in Barndorff-Nielsen's form (Davison and Hinkley, "Saddlepoint
approximations in resampling methods", Biometrika 75, 1988), with the continuity correction of a
lattice, and percentiles are snapped to values that a resample can have.

Where counting all resamples is quicker than that, they are counted (`lattice.resampled_sums`).

Units that are nearly all tied have a large atom, which no smooth curve follows: for them the number
of untied draws is drawn first and only those are resampled.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from math import ceil, comb, exp, gcd, log, sqrt
from statistics import NormalDist

from optimizer.statistics.lattice import on_lattice, resampled_sums

FEWEST_UNTIED = 12
"""Below, the resample without any untied unit has a probability that matters: e**-12 = 6e-6."""
MOST_DIGITS = 60_000
"""A distribution that is counted in some milliseconds."""
FEWEST_UNITS = 20
"""Below, resampling itself is quick."""
_HALVINGS = 26
_FARTHEST = 9.0
"""Standard errors from the mean, beyond every percentile that is asked for."""
_NORMAL = NormalDist()
Interval = tuple[float, float]


def quick_intervals(
    units: Sequence[Fraction], levels: Sequence[tuple[int, Fraction, Fraction]], *, seed: int
) -> dict[int, Interval]:
    """Central percentile intervals of the mean; `levels` are (name, lower, upper probability)."""
    lattice = on_lattice(units)
    counts = Counter(lattice.points)
    mode, n_mode = counts.most_common(1)[0]
    scale = lattice.denominator * len(units)
    if len(counts) == 1:
        value = float(units[0])
        return {name: (value, value) for name, _, _ in levels}
    probabilities = [p for _, *pair in levels for p in pair]
    if _counting(counts) <= MOST_DIGITS:
        found = _counted(lattice.points, probabilities)
    elif len(units) - n_mode < FEWEST_UNTIED:
        sums = _mostly_tied(counts, mode, seed=seed)
        found = {p: sums[max(1, ceil(p * len(sums))) - 1] for p in probabilities}
    else:
        found = {p: _percentile(counts, float(p)) for p in probabilities}
    return {
        name: (float(Fraction(found[low], scale)), float(Fraction(found[high], scale)))
        for name, low, high in levels
    }


def _counting(counts: Counter[int]) -> float:
    """Digits that all resamples together take."""
    n = counts.total()
    return n * (max(counts) - min(counts)) * n * math.log10(n)


def _counted(points: Sequence[int], probabilities: Sequence[Fraction]) -> dict[Fraction, int]:
    total = len(points) ** len(points)
    sums = resampled_sums(points)
    cumulative, values = list(accumulate(sums.values())), list(sums)
    return {p: values[bisect_left(cumulative, ceil(p * total))] for p in probabilities}


def _percentile(counts: Counter[int], level: float) -> int:
    """Smallest sum of a resample whose cumulative probability is at least the level."""
    n = counts.total()
    low = min(counts)
    step = gcd(*(point - low for point in counts))
    mean = sum(point * count for point, count in counts.items()) / n
    spread = sqrt(sum(count * (point - mean) ** 2 for point, count in counts.items()) / n)
    parts = [((point - mean) / spread, count / n) for point, count in counts.items()]
    left, right = -_FARTHEST / sqrt(n), _FARTHEST / sqrt(n)
    for _ in range(_HALVINGS):
        middle = (left + right) / 2
        if _tail(parts, middle, n) < level:
            left = middle
        else:
            right = middle
    reached = n * (mean + spread * _slope(parts, (left + right) / 2))
    # A lattice's probability up to a value is the smooth one's half a step further.
    steps = ceil((reached - step / 2 - n * low) / step - 1e-9)
    return n * low + step * max(0, steps)


def _slope(parts: Sequence[tuple[float, float]], t: float) -> float:
    weights = [share * exp(t * z) for z, share in parts]
    return sum(w * z for w, (z, _) in zip(weights, parts, strict=True)) / sum(weights)


def _tail(parts: Sequence[tuple[float, float]], t: float, n: int) -> float:
    """P(mean of n draws <= K'(t)) of standardised units."""
    total = first = second = 0.0
    for z, share in parts:
        weight = share * exp(t * z)
        total += weight
        first += weight * z
        second += weight * z * z
    slope = first / total
    curve = second / total - slope * slope
    w = math.copysign(sqrt(max(0.0, 2 * n * (t * slope - log(total)))), t)
    if abs(w) < 1e-3:
        return _NORMAL.cdf(w)
    u = t * sqrt(n * curve)
    return _NORMAL.cdf(w + log(u / w) / w)


def _mostly_tied(
    counts: Counter[int], mode: int, *, seed: int, resamples: int = 10_000
) -> list[int]:
    """Sorted sums of resamples, each drawn as its number of untied units, then those."""
    n = counts.total()
    untied = [point - mode for point in counts.elements() if point != mode]
    total, m = n**n, len(untied)
    chances = [comb(n, k) * m**k * (n - m) ** (n - k) / total for k in range(min(n, 60) + 1)]
    cumulative = list(accumulate(chances))
    generator = random.Random(seed)
    draw, last = generator.random, len(cumulative) - 1
    return sorted(
        n * mode
        + sum(untied[int(draw() * m)] for _ in range(min(last, bisect_right(cumulative, draw()))))
        for _ in range(resamples)
    )
