"""What a certificate costs and can show, before anything is spent.

For pass/fail scores the evidence depends on the numbers of wins and losses alone, so the power of
the betting test is computed exactly over that lattice; there is nothing to simulate. It assumes
that both sides pass independently given their rates; tasks that are easy or hard for both tie more
often and need fewer pairs, so the plan errs on the side of too many.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from optimizer.errors import StatisticsDomain
from optimizer.statistics.betting import GRID

NEGLIGIBLE = 1e-8
"""Lattice points that are less probable are dropped."""


def fewest_straight_wins(alpha: float, grid: Sequence[float] = GRID) -> int:
    """The shortest road to acceptance: full marks against none, pair after pair."""
    return _pairs_until([1.0 + bet for bet in grid], alpha)


def ties_until_non_inferior(
    margin: float, alpha: float = 0.05, grid: Sequence[float] = GRID
) -> int:
    """Pairs until a candidate that ties exactly is certified as not inferior by `margin`."""
    if not 0.0 < margin <= 1.0:
        raise StatisticsDomain(f"a margin lies in 0 to 1 and is not 0, got {margin!r}")
    return _pairs_until([1.0 + bet * margin for bet in grid], alpha)


@dataclass(frozen=True)
class Power:
    accept: float
    """Probability of `improved` within the pairs."""
    reject: float
    """Probability of `not_improved`."""
    median_pairs: int | None
    """Median number of pairs of the runs that accept."""


def power(pairs: int, base: float, gain: float, *, alpha: float = 0.05) -> Power:
    """The exact power with pass rates `base` and `base + gain` and at most `pairs` pairs."""
    rate = base + gain
    if not (0.0 <= base <= 1.0 and 0.0 <= rate <= 1.0):
        raise StatisticsDomain(f"pass rates lie in 0 to 1, got {base!r} and {rate!r}")
    p_win, p_loss = rate * (1.0 - base), base * (1.0 - rate)
    p_tie = 1.0 - p_win - p_loss
    enough = _enough_wins(pairs, alpha)
    alive: dict[tuple[int, int], float] = {(0, 0): 1.0}
    accepted_at: list[float] = []
    rejected = 0.0
    for _ in range(pairs):
        after: defaultdict[tuple[int, int], float] = defaultdict(float)
        for (wins, losses), p in alive.items():
            after[wins, losses] += p * p_tie
            after[wins + 1, losses] += p * p_win
            after[wins, losses + 1] += p * p_loss
        accepted_at.append(0.0)
        alive = {}
        for (wins, losses), p in after.items():
            if wins >= enough[losses]:
                accepted_at[-1] += p
            elif losses >= enough[wins]:
                rejected += p
            elif p > NEGLIGIBLE:
                alive[wins, losses] = p
    accept = math.fsum(accepted_at)
    return Power(accept, rejected, _median(accepted_at, accept))


def smallest_certifiable_gain(
    pairs: int, base: float, *, alpha: float = 0.05, wanted: float = 0.8
) -> float | None:
    """The smallest gain that `pairs` pairs certify with probability `wanted`, to half a point.

    None when not even the largest possible gain reaches it.
    """
    low, high = 0, math.floor((1.0 - base) * 200)  # in half points
    if power(pairs, base, min(high / 200, 1.0 - base), alpha=alpha).accept < wanted:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if power(pairs, base, middle / 200, alpha=alpha).accept >= wanted:
            high = middle
        else:
            low = middle
    return high / 200


def evidence(wins: int, losses: int, grid: Sequence[float] = GRID) -> float:
    """E⁺ after that many wins, losses and any number of ties, in any order."""
    return math.fsum((1.0 + bet) ** wins * (1.0 - bet) ** losses for bet in grid) / len(grid)


def _enough_wins(pairs: int, alpha: float) -> list[int]:
    """By number of losses, the fewest wins at which the evidence reaches 1/alpha."""
    enough, wins = [], 0
    for losses in range(pairs + 1):
        while evidence(wins, losses) * alpha < 1.0:
            wins += 1
        enough.append(wins)
    return enough


def _pairs_until(factors: Sequence[float], alpha: float) -> int:
    if not 0.0 < alpha < 1.0:
        raise StatisticsDomain(f"alpha lies between 0 and 1, got {alpha!r}")
    capital, pairs = [1.0] * len(factors), 0
    # The comparison is written as in `betting`, so that plan and test agree to the last pair.
    while math.fsum(capital) / len(factors) * alpha < 1.0:
        capital = [c * f for c, f in zip(capital, factors, strict=True)]
        pairs += 1
    return pairs


def _median(accepted_at: Sequence[float], accept: float) -> int | None:
    if accept < NEGLIGIBLE:
        return None
    total = 0.0
    for pairs, p in enumerate(accepted_at, start=1):
        total += p
        if total >= accept / 2:
            return pairs
    return len(accepted_at)
