"""The interval of one mean by itself; comparisons are paired (`optimizer.statistics.paired`)."""

from __future__ import annotations

import math
from statistics import NormalDist

from optimizer.errors import StatisticsDomain


def wilson_interval(total: float, n: int, *, level: float = 0.95) -> tuple[float, float]:
    """Wilson's interval for a mean of `n` scores in 0 to 1 whose sum is `total`.

    Exact in intent for passes out of n; for graded scores it is on the safe side, since their
    spread is never above that of pass/fail scores with the same mean. No scores give (0, 1).
    """
    if n < 0 or not 0.0 <= total <= n:
        raise StatisticsDomain(f"{total!r} of {n} scores is not a mean in 0 to 1")
    if n == 0:
        return (0.0, 1.0)
    z = NormalDist().inv_cdf((1.0 + level) / 2.0)
    p = total / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return (max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half)))
