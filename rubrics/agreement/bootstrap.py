"""Intervals by resampling (Efron, 1979; percentile method).

Items are drawn whole: hand in one per rollout, or per task where rollouts of a task hang together.
The same seed gives the same interval.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
RESAMPLES = 1000


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    level: float
    n_undefined: int
    """Resamples in which the statistic could not be computed; they are left out."""


def bootstrap_interval(
    items: Sequence[T],
    statistic: Callable[[Sequence[T]], float | None],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
    level: float = 0.95,
) -> Interval | None:
    """Percentile interval of `statistic`. None with fewer than two items, or if it is undefined in
    more than half of the resamples.
    """
    if len(items) < 2:
        return None
    draw = random.Random(seed)
    found = [
        value
        for _ in range(resamples)
        if (value := statistic(draw.choices(items, k=len(items)))) is not None
    ]
    if 2 * len(found) < resamples:
        return None
    found.sort()
    return Interval(
        low=quantile(found, (1 - level) / 2),
        high=quantile(found, (1 + level) / 2),
        level=level,
        n_undefined=resamples - len(found),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between order statistics (Hyndman and Fan's type 7)."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
