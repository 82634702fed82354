"""What a search will cost and what it can show, before anything is spent.

Costs are ranges: a search may end early (the test crosses, proposals run dry), and what one rollout
costs is known only from those that were seen. The smallest gain is that of the certificate
(`optimizer.statistics.planning`); graded rubrics need fewer pairs than pass/fail, so for them the
figure errs on the safe side.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from optimizer.search_plan import SearchPlan
from optimizer.statistics.planning import smallest_certifiable_gain

UNKNOWN_BASE = 0.5
"""Pass rate that is assumed where none was measured: no other needs more pairs."""
MAX_EXACT_PAIRS = 100
"""The exact power takes 0.3 s for so many pairs and 2 s for 400, and a form asks as it is filled
in. Gains scale with 1/√pairs from there, within a point at 400.
"""


@dataclass(frozen=True)
class Range:
    low: float
    mean: float
    high: float

    def times(self, low: float, high: float) -> Range:
        """For `low` to `high` rollouts; the mean is taken in the middle."""
        return Range(self.low * low, self.mean * (low + high) / 2, self.high * high)


@dataclass(frozen=True)
class PerRollout:
    """What one rollout needs, as far as it is known; None where nothing was seen yet."""

    tokens: Range | None = None
    usd: Range | None = None
    seconds: Range | None = None
    """Of one rollout alone."""


@dataclass(frozen=True)
class Forecast:
    rollouts: tuple[int, int]
    """Fewest and most."""
    tokens: Range | None
    usd: Range | None
    seconds: Range | None
    """Wall time, with `concurrency` rollouts at a time."""
    smallest_gain: float | None
    """That the certificate finds with 80 % probability; None where even the largest may be missed.
    """
    pairs_per_task: float
    sentence: str
    """For people."""


def forecast(
    plan: SearchPlan,
    *,
    per_rollout: PerRollout | None = None,
    concurrency: int = 1,
    base_rate: float | None = None,
    test_rollouts: int = 0,
) -> Forecast:
    """`test_rollouts` are those of the sealed test; `base_rate` the seed's mean score, if known."""
    known = per_rollout or PerRollout()
    fewest = plan.search_rollouts // 2 + 2 * min(plan.certify_batch, plan.certify_pairs)
    most = plan.max_rollouts + test_rollouts
    gain = smallest_gain(plan, UNKNOWN_BASE if base_rate is None else base_rate)
    each = plan.certify_pairs / len(plan.select)
    return Forecast(
        rollouts=(fewest, most),
        tokens=known.tokens and known.tokens.times(fewest, most),
        usd=known.usd and known.usd.times(fewest, most),
        seconds=known.seconds and known.seconds.times(fewest / concurrency, most / concurrency),
        smallest_gain=gain,
        pairs_per_task=each,
        sentence=_sentence(len(plan.select), each, gain),
    )


def smallest_gain(plan: SearchPlan, base_rate: float) -> float | None:
    """At the α of the first certificate."""
    alpha = plan.certify_plan().alpha_of(1)
    base = round(min(max(base_rate, 0.0), 0.99), 2)
    pairs = min(plan.certify_pairs, MAX_EXACT_PAIRS)
    gain = _smallest(pairs, base, alpha)
    if gain is None:
        return None
    return gain * math.sqrt(pairs / plan.certify_pairs)


@lru_cache(maxsize=256)
def _smallest(pairs: int, base: float, alpha: float) -> float | None:
    return smallest_certifiable_gain(pairs, base, alpha=alpha)


def _sentence(tasks: int, each: float, gain: float | None) -> str:
    what = (
        f"With {tasks} task{'' if tasks == 1 else 's'} × {each:.2g} pair{'' if each == 1 else 's'}"
    )
    if gain is None:
        return f"{what} no gain can be certified: give certification more pairs."
    return f"{what} you can see ±{100 * gain:.0f} points."
