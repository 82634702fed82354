"""pass@k: how likely at least one of k attempts at a task passes.

Per task the unbiased estimate 1 - C(n-c, k) / C(n, k) of n attempts of which c passed (Chen and
others, arXiv 2107.03374, section 2.1), then the mean over tasks. The unit is the task: attempts at
one task are not independent. The interval is Wilson's over tasks, which is on the safe side for
graded units. Tasks with fewer than k attempts say nothing about k and are counted as left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

from optimizer.errors import StatisticsDomain
from optimizer.statistics.interval import wilson_interval


@dataclass(frozen=True)
class PassAtK:
    k: int
    mean: float | None
    """0 to 1; None without a task that has k attempts."""
    low: float | None
    high: float | None
    tasks: int
    left_out: int
    """Tasks with at least one and fewer than k attempts."""


def pass_at_k(counts: Iterable[tuple[int, int]], k: int) -> PassAtK:
    """`counts`: attempts with a score and how many of them passed, of each task.

    Raises StatisticsDomain for k below 1 or counts that cannot be.
    """
    if k < 1:
        raise StatisticsDomain(f"k is at least 1, got {k}")
    units: list[float] = []
    left_out = 0
    for n, passed in counts:
        if not 0 <= passed <= n:
            raise StatisticsDomain(f"{passed} of {n} attempts cannot have passed")
        if n >= k:
            units.append(1.0 - comb(n - passed, k) / comb(n, k))
        elif n:
            left_out += 1
    if not units:
        return PassAtK(k, None, None, None, 0, left_out)
    total = min(float(len(units)), sum(units))
    low, high = wilson_interval(total, len(units))
    return PassAtK(k, total / len(units), low, high, len(units), left_out)


def ks_for(attempts: Iterable[int], *, at_most: int = 4) -> list[int]:
    """1, 2, 4, 8, … as far as half of the tasks have so many attempts; at most `at_most` of them.

    The largest k that they have comes last where it is no power of two.
    """
    sorted_attempts = sorted((n for n in attempts if n), reverse=True)
    if not sorted_attempts:
        return []
    largest = sorted_attempts[(len(sorted_attempts) - 1) // 2]
    ks = [1 << power for power in range(largest.bit_length()) if 1 << power <= largest]
    if ks[-1] != largest:
        ks.append(largest)
    return ks if len(ks) <= at_most else [*ks[: at_most - 1], ks[-1]]
