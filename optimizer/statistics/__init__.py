"""Statistics of claims: is it better, by how much, and what could this budget ever show?

- `betting`: the anytime-valid paired test that certifies
- `planning`: what a number of pairs can certify, before it is spent
- `paired`: intervals and exact tests on a sealed split, with tasks as units
- `interval`: one mean by itself

Missing pairs are skipped and counted, never filled in. Numbers outside the domain of a statistic
raise StatisticsDomain. Reference values: `tests/vectors/certify.json`, run by `optimizer.check`.
"""

from __future__ import annotations

from optimizer.statistics.betting import EProcess, Verdict, alpha_share, e_process
from optimizer.statistics.interval import wilson_interval
from optimizer.statistics.paired import Pair, PairedResult, compare, units_by_task
from optimizer.statistics.planning import (
    fewest_straight_wins,
    power,
    smallest_certifiable_gain,
    ties_until_non_inferior,
)

__all__ = [
    "EProcess",
    "Pair",
    "PairedResult",
    "Verdict",
    "alpha_share",
    "compare",
    "e_process",
    "fewest_straight_wins",
    "power",
    "smallest_certifiable_gain",
    "ties_until_non_inferior",
    "units_by_task",
    "wilson_interval",
]
