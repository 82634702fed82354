"""The Beta distribution of a success rate: mean, interval, and how much a group of rollouts tells.

Pure. Counts may be fractions: decayed, or of scores between 0 and 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

_STEPS = 200
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Beta:
    """Success counts as `a`, failure counts as `b`, the prior's included; both above 0."""

    a: float
    b: float

    @property
    def mean(self) -> float:
        return self.a / (self.a + self.b)

    @property
    def strength(self) -> float:
        return self.a + self.b

    def signal(self, group: int) -> float:
        """Expected chance that `group` rollouts do not all end alike, 0 to 1.

        The mean of 1 − pᴳ − (1−p)ᴳ over the distribution, not its value at the mean: of a task
        that was hardly tried it says that it may well tell something.
        """
        all_pass = all_fail = 1.0
        for i in range(group):
            all_pass *= (self.a + i) / (self.strength + i)
            all_fail *= (self.b + i) / (self.strength + i)
        return max(0.0, 1.0 - all_pass - all_fail)

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Central interval that holds `level` of the distribution."""
        tail = (1 - level) / 2
        return self.quantile(tail), self.quantile(1 - tail)

    def quantile(self, share: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            if self.cumulative(middle) < share:
                low = middle
            else:
                high = middle
        return (low + high) / 2

    def cumulative(self, x: float) -> float:
        """Regularised incomplete beta function, by its continued fraction (Numerical Recipes in C,
        2nd edition, section 6.4).
        """
        if x <= 0 or x >= 1:
            return float(x >= 1)
        a, b = self.a, self.b
        log_front = (
            math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
            + a * math.log(x) + b * math.log1p(-x)
        )  # fmt: skip
        front = math.exp(log_front)
        if x < (a + 1) / (a + b + 2):
            return front * _fraction(a, b, x) / a
        return 1.0 - front * _fraction(b, a, 1 - x) / b


def _fraction(a: float, b: float, x: float) -> float:
    """Lentz's method."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / _away(1.0 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, _STEPS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away(1.0 + numerator * d, tiny)
            c = _away(1.0 + numerator / c, tiny)
            value *= c * d
        if abs(c * d - 1.0) < _TOLERANCE:
            break
    return value


def _away(value: float, tiny: float) -> float:
    return tiny if abs(value) < tiny else value
