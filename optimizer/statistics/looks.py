"""How much of α each look at growing data may use, so that all looks together use no more.

A test that is made after every batch at the full α is wrong far more often than α says. Here α is
spent along the way: after the share t of the planned data at most α·t² is used up (Kim & DeMets,
"Design and analysis of group sequential tests based on the type I error spending rate function",
Biometrika 74, 1987, with ρ = 2). Early looks need strong evidence; the last one gives away little.

The level of each look follows from what earlier looks have spent, by recursive integration over
the paths that have crossed no boundary (Armitage, McPherson & Rowe 1969; Jennison & Turnbull,
"Group Sequential Methods", 2000, ch. 7 and 19). Looks are taken to be correlated as sums of
independent batches are. Where tasks differ in their effect, means of later looks are correlated
more than that, and what is spent is less (Slepian's inequality): the error is on the safe side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from optimizer.errors import StatisticsDomain

RHO = 2.0
MAX_LOOKS = 20
_POINTS = 241
"""Of the grid over the paths; odd, for Simpson's rule."""
_WIDTH = 8.0
"""Standard deviations below zero at which the grid begins."""
_NORMAL = NormalDist()


@dataclass(frozen=True)
class Look:
    share: float
    """Of the planned data, 0 to 1."""
    spent: float
    """One-sided α that this look and all before it use."""
    z: float
    """The boundary, in standard errors."""
    level: float
    """One-sided: a p-value at or below it decides at this look."""


@lru_cache(maxsize=256)
def looks_at(shares: tuple[float, ...], alpha: float) -> tuple[Look, ...]:
    """The looks at these shares of the data, for a one-sided test at `alpha`.

    Raises StatisticsDomain unless shares rise to 1 in at most MAX_LOOKS steps.
    """
    if not 0.0 < alpha < 0.5:
        raise StatisticsDomain(f"one-sided alpha lies between 0 and 0.5, got {alpha!r}")
    if not 1 <= len(shares) <= MAX_LOOKS:
        raise StatisticsDomain(f"1 to {MAX_LOOKS} looks, got {len(shares)}")
    steps = zip((0.0, *shares), shares, strict=False)
    if shares[-1] != 1.0 or any(not before < after for before, after in steps):
        raise StatisticsDomain(f"shares of the data rise to 1, got {list(shares)!r}")
    found: list[Look] = []
    paths: _Paths | None = None
    before = spent = 0.0
    for share in shares:
        now = alpha * share**RHO
        step = math.sqrt(share - before)
        bound = _bound(paths, step, now - spent)
        z = bound / math.sqrt(share)
        found.append(Look(share, now, z, _NORMAL.cdf(-z)))
        if share < 1.0:
            paths = _moved(paths, step, bound, -_WIDTH * math.sqrt(share))
        before, spent = share, now
    return tuple(found)


@dataclass(frozen=True)
class _Paths:
    """Density of the sum at a look over the paths that are still below all boundaries."""

    at: Sequence[float]
    weighted: Sequence[float]
    """Density times the weight of Simpson's rule."""


def _bound(paths: _Paths | None, step: float, wanted: float) -> float:
    """What the sum must reach so that `wanted` of all paths reach it now for the first time."""
    if paths is None:
        return -step * _NORMAL.inv_cdf(wanted)
    low, high = -1.0, _WIDTH
    for _ in range(60):
        middle = (low + high) / 2
        if _above(paths, step, middle) > wanted:
            low = middle
        else:
            high = middle
    return high


def _above(paths: _Paths, step: float, bound: float) -> float:
    scale = 1.0 / (step * math.sqrt(2.0))
    return math.fsum(
        weight * 0.5 * math.erfc((bound - at) * scale)
        for at, weight in zip(paths.at, paths.weighted, strict=True)
    )


def _moved(paths: _Paths | None, step: float, bound: float, start: float) -> _Paths:
    gap = (bound - start) / (_POINTS - 1)
    at = [start + gap * i for i in range(_POINTS)]
    norm, factor = 1.0 / (step * math.sqrt(2 * math.pi)), -0.5 / step**2
    if paths is None:
        density = [norm * math.exp(factor * x * x) for x in at]
    else:
        pairs = list(zip(paths.at, paths.weighted, strict=True))
        density = [
            norm * math.fsum(w * math.exp(factor * (x - u) ** 2) for u, w in pairs) for x in at
        ]
    weights = [
        gap / 3 * (1 if i in (0, _POINTS - 1) else 4 if i % 2 else 2) for i in range(_POINTS)
    ]
    return _Paths(at, [d * w for d, w in zip(density, weights, strict=True)])
