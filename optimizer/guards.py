"""What else must hold before a certified bundle is promoted: nothing in particular got worse.

A guard speaks on one criterion or one stratum of tasks. It is breached when the upper one-sided
90 % bound of the change lies below −0.05: worse by more than the margin, with confidence. Few
pairs say little; below MIN_PAIRS a guard is silent, because the spread of so few is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MARGIN = 0.05
MIN_PAIRS = 5
T_90 = {5: 1.533, 6: 1.476, 7: 1.440, 8: 1.415, 9: 1.397, 10: 1.383, 15: 1.345, 20: 1.328}
"""One-sided 90 % quantile of Student's t by number of pairs; the next smaller entry is used."""
Z_90 = 1.2816
MANY = 30


@dataclass(frozen=True)
class Change:
    """The difference of one pair, seen from one criterion or stratum."""

    name: str
    difference: float


@dataclass(frozen=True)
class Guard:
    name: str
    pairs: int
    mean: float
    upper: float | None
    """Upper one-sided 90 % bound of the change; None below MIN_PAIRS."""

    @property
    def is_breached(self) -> bool:
        return self.upper is not None and self.upper < -MARGIN


def guards(changes: Iterable[Change]) -> list[Guard]:
    """One guard per name, sorted by name."""
    by_name: dict[str, list[float]] = {}
    for change in changes:
        by_name.setdefault(change.name, []).append(change.difference)
    return [_guard(name, values) for name, values in sorted(by_name.items())]


def _guard(name: str, values: list[float]) -> Guard:
    n = len(values)
    mean = math.fsum(values) / n
    if n < MIN_PAIRS:
        return Guard(name, n, mean, None)
    variance = math.fsum((value - mean) ** 2 for value in values) / (n - 1)
    quantile = Z_90 if n >= MANY else T_90[max(k for k in T_90 if k <= n)]
    return Guard(name, n, mean, mean + quantile * math.sqrt(variance / n))
