"""An anytime-valid test of paired differences by betting.

For differences d₁, d₂, … in [−1, 1] (candidate minus base, same task, same replicate) and the grid
Λ the evidence after n pairs is E⁺ₙ = mean over λ in Λ of Π (1 + λ·dᵢ), and E⁻ₙ the same with
1 − λ·dᵢ. If the mean difference given the past is never above 0, E⁺ reaches 1/α with probability
at most α, however often one looks and whenever one stops; E⁻ likewise for differences not below 0.
The verdict is fixed at the first crossing, whatever comes later.

A margin δ for non-inferiority enters as `shift`: d + δ in the place of d.

Source: Waudby-Smith & Ramdas, "Estimating means of bounded random variables by betting", 2023,
with a fixed grid in the place of their adaptive bets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from optimizer.errors import StatisticsDomain

GRID = (0.1, 0.2, 0.35, 0.5, 0.7)
MIN_COVERAGE = 0.8
MAX_EVIDENCE = 1e300
"""Evidence is held there: infinity is not JSON, and nobody needs to know more."""
TIE = 1e-9
"""Relative distance from the threshold below which floats are not trusted to decide."""


class Verdict(StrEnum):
    IMPROVED = "improved"
    """E⁺ crossed; with a margin: not inferior by the margin."""
    NOT_IMPROVED = "not_improved"
    """E⁻ crossed; with a margin: inferior by more than the margin."""
    INDECISIVE = "indecisive"
    """Neither did, or too many pairs are missing. Frequent and legitimate."""


@dataclass(frozen=True)
class EProcess:
    """The whole course of a test; the lists go on behind the crossing."""

    alpha: float
    shift: float
    e_plus: tuple[float, ...]
    """After each valid pair."""
    e_minus: tuple[float, ...]
    crossing_pair: int | None
    """Counts valid pairs, from 1."""
    crossing_position: int | None
    """Counts scheduled pairs, from 1."""
    valid: int
    """Valid pairs up to the crossing, or else all."""
    scheduled: int
    """Scheduled pairs up to the crossing, or else all."""
    coverage: float
    verdict: Verdict
    reason: str
    """crossed, budget (ended without a crossing), coverage or no_data."""
    mean: float | None
    """Mean difference of all valid pairs, also those behind the crossing; without the shift."""

    @property
    def threshold(self) -> float:
        return 1.0 / self.alpha

    @property
    def has_crossed(self) -> bool:
        return self.crossing_pair is not None

    @property
    def evidence(self) -> float:
        """E⁺ at the crossing, or else at the end; 1 before the first pair."""
        return self.e_plus[self.valid - 1] if self.valid else 1.0


def e_process(
    differences: Iterable[float | None],
    *,
    alpha: float = 0.05,
    shift: float = 0.0,
    min_coverage: float = MIN_COVERAGE,
    grid: Sequence[float] = GRID,
) -> EProcess:
    """The test of all scheduled pairs in their order; None is a pair lost to an error.

    Raises StatisticsDomain for differences outside [−1, 1], NaN, or an unusable alpha or shift.
    """
    _check(alpha, shift, grid)
    up, down = [1.0] * len(grid), [1.0] * len(grid)
    e_plus: list[float] = []
    e_minus: list[float] = []
    seen: list[float] = []
    scheduled = 0
    crossing: tuple[int, int, Verdict] | None = None
    for d in differences:
        scheduled += 1
        if d is None:
            continue
        seen.append(checked_difference(d))
        for i, bet in enumerate(grid):
            up[i] = min(up[i] * (1.0 + bet * (d + shift)), MAX_EVIDENCE)
            down[i] = min(down[i] * (1.0 - bet * (d + shift)), MAX_EVIDENCE)
        e_plus.append(math.fsum(up) / len(grid))
        e_minus.append(math.fsum(down) / len(grid))
        if crossing is None:
            if _reaches(e_plus[-1], alpha, seen, shift, grid, sign=1):
                crossing = (len(seen), scheduled, Verdict.IMPROVED)
            elif _reaches(e_minus[-1], alpha, seen, shift, grid, sign=-1):
                crossing = (len(seen), scheduled, Verdict.NOT_IMPROVED)
    valid, upto = crossing[:2] if crossing else (len(seen), scheduled)
    coverage = valid / upto if upto else 1.0
    verdict, reason = Verdict.INDECISIVE, "budget"
    if not scheduled:
        reason = "no_data"
    elif coverage < min_coverage:
        reason = "coverage"
    elif crossing:
        verdict, reason = crossing[2], "crossed"
    return EProcess(
        alpha=alpha,
        shift=shift,
        e_plus=tuple(e_plus),
        e_minus=tuple(e_minus),
        crossing_pair=crossing[0] if crossing else None,
        crossing_position=crossing[1] if crossing else None,
        valid=valid,
        scheduled=upto,
        coverage=coverage,
        verdict=verdict,
        reason=reason,
        mean=math.fsum(seen) / len(seen) if seen else None,
    )


def alpha_share(j: int, alpha: float = 0.05) -> float:
    """What the j-th certificate of a run may spend: alpha·6/(π²·j²); the sum stays below alpha.

    It applies from the first certificate on whenever the run may ask for a second one.
    """
    if j < 1:
        raise StatisticsDomain(f"certificates are counted from 1, got {j}")
    return alpha * 6.0 / (math.pi**2 * j**2)


def checked_difference(d: float) -> float:
    if not -1.0 <= d <= 1.0:  # also false for NaN
        raise StatisticsDomain(f"a difference of scores lies in -1 to 1, got {d!r}")
    return d


def _check(alpha: float, shift: float, grid: Sequence[float]) -> None:
    if not 0.0 < alpha < 1.0:
        raise StatisticsDomain(f"alpha lies between 0 and 1, got {alpha!r}")
    if not grid or not all(0.0 < bet < 1.0 for bet in grid):
        raise StatisticsDomain(f"bets lie between 0 and 1, got {list(grid)!r}")
    # Capital must stay positive at the worst difference on either side.
    if not max(grid) * (1.0 + abs(shift)) < 1.0:
        raise StatisticsDomain(f"with bets up to {max(grid)} no shift of {shift!r} is possible")


def _reaches(
    evidence: float,
    alpha: float,
    seen: Sequence[float],
    shift: float,
    grid: Sequence[float],
    *,
    sign: int,
) -> bool:
    """Whether evidence ≥ 1/alpha.

    So near to it that rounding could decide, it is computed exactly.
    """
    if abs(evidence * alpha - 1.0) > TIE:
        return evidence * alpha > 1.0
    total = Fraction(0)
    for bet in grid:
        capital = Fraction(1)
        for d in seen:
            capital *= 1 + sign * decimal(bet) * (decimal(d) + decimal(shift))
        total += capital
    return total * decimal(alpha) >= len(grid)


def decimal(x: float) -> Fraction:
    """The number that was meant by a float: 0.1 is one tenth, 0.3333333333333333 is one third."""
    exact = Fraction(repr(float(x)))
    if exact.denominator > 1_000_000:
        simple = exact.limit_denominator(10_000)
        if float(simple) == x:
            return simple
    return exact
