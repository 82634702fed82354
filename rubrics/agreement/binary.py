"""Yes and no against yes and no: counts, rates with intervals, the corrected pass rate, a test.

Wilson, Probable inference, 1927 (interval of a share). Rogan and Gladen, Estimating prevalence from
the results of a screening test, 1978 (corrected rate). McNemar, 1947, in its exact form (whether
one of two judges errs less often).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist

Pair = tuple[bool, bool]
"""What the person said, what the judge said."""


@dataclass(frozen=True)
class Rate:
    """A share of `n` with an interval; the value is None where n is 0."""

    value: float | None
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Confusion:
    """Counts of (person, judge)."""

    true_positive: int = 0
    false_negative: int = 0
    false_positive: int = 0
    true_negative: int = 0

    @classmethod
    def of(cls, pairs: Iterable[Pair]) -> Confusion:
        counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
        for person, judge in pairs:
            counts[bool(person), bool(judge)] += 1
        return cls(
            counts[True, True], counts[True, False], counts[False, True], counts[False, False]
        )

    @property
    def n(self) -> int:
        return self.true_positive + self.false_negative + self.false_positive + self.true_negative

    @property
    def agreement(self) -> Rate:
        return wilson(self.true_positive + self.true_negative, self.n)

    @property
    def true_positive_rate(self) -> Rate:
        """Of what people passed, the share that the judge passed."""
        return wilson(self.true_positive, self.true_positive + self.false_negative)

    @property
    def true_negative_rate(self) -> Rate:
        """Of what people failed, the share that the judge failed."""
        return wilson(self.true_negative, self.true_negative + self.false_positive)


def wilson(successes: int, n: int, level: float = 0.95) -> Rate:
    """Share and Wilson score interval."""
    if n == 0:
        return Rate(None, 0.0, 1.0, 0)
    share = successes / n
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return Rate(share, max(0.0, middle - half), min(1.0, middle + half), n)


def corrected_pass_rate(judged: float, confusion: Confusion) -> float | None:
    """What people would have passed, from what the judge passed: (p + TNR − 1) / (TPR + TNR − 1).

    `judged`: share that the judge passed, over all its verdicts. Cut to 0 to 1. None where labels
    of a class are missing or the judge is no better than chance: then its rate says nothing.
    """
    positive = confusion.true_positive_rate.value
    negative = confusion.true_negative_rate.value
    if positive is None or negative is None or positive + negative - 1 <= 0:
        return None
    return min(1.0, max(0.0, (judged + negative - 1) / (positive + negative - 1)))


def mcnemar_exact(only_first: int, only_second: int) -> float:
    """Two-sided p-value: items that one judge alone got right, against those of the other alone."""
    n = only_first + only_second
    if n == 0:
        return 1.0
    tail = sum(math.comb(n, k) for k in range(min(only_first, only_second) + 1))
    return min(1.0, float(2 * tail / 2**n))
