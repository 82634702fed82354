"""What the factorial engine tells of a search: effects, candidates, graves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import NormalDist

from optimizer.engines.contract import SEED, Buried, Candidate, Estimate, Tried
from optimizer.engines.factorial.planning import Observation
from optimizer.engines.factorial.pool import Bundle, Pool
from optimizer.gaussian import Posterior


def estimated(pool: Pool, known: Posterior, seen: Sequence[Observation]) -> list[Estimate]:
    """The effect of each edit, in the order of the pool."""
    found = []
    for i, edit in enumerate(pool.edits):
        mean, sd = known.sum_of(pool.effect_columns(i))
        n_with = sum(i in each.bundle for each in seen)
        positive = NormalDist().cdf(mean / sd)
        found.append(Estimate(edit, mean, sd, positive, n_with, len(seen) - n_with))
    return found


def tried(
    pool: Pool,
    known: Posterior,
    seen: Sequence[Observation],
    bundles: Iterable[Bundle],
    raced: Mapping[Bundle, float],
) -> Iterator[Tried]:
    """The seed, then each bundle once; `raced` has the estimates that a race has settled."""
    scores: dict[Bundle, list[float]] = {}
    for each in seen:
        scores.setdefault(each.bundle, []).append(each.score)
    for bundle in dict.fromkeys([(), *bundles]):
        values = scores.get(bundle, [])
        yield Tried(
            Candidate(tuple(pool.edits[i] for i in bundle)),
            parent=SEED.key if bundle else "",
            relation="mutate" if bundle else "",
            n=len(values),
            mean=math.fsum(values) / len(values) if values else None,
            estimate=raced.get(bundle, known.sum_of(pool.columns(bundle))[0]),
        )


def burial(estimate: Estimate) -> Buried:
    if estimate.high < 0:
        reason = "makes it worse"
    elif estimate.mean <= 0:
        reason = "does not help"
    else:
        reason = "not sure enough to be kept"
    evidence = {
        "mean": estimate.mean,
        "low": estimate.low,
        "high": estimate.high,
        "n_with": float(estimate.n_with),
        "n_without": float(estimate.n_without),
    }
    return Buried(estimate.edit, reason, evidence)
