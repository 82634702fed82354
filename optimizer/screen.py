"""The factorial screen: which edits help, from rollouts that each run under some subset of them.

A block is one subset (a bundle) on a handful of tasks, so that a model server keeps its prompt in
cache. The first wave of blocks is a balanced random design; later waves draw from the posterior
(Thompson sampling) and so spend their rollouts where a good bundle may be.

The model of a score is linear in the edits (`optimizer.gaussian`), with two additions:

- Alternatives (edits that exclude each other) are one factor of which at most one level is on.
- Demonstrations share columns for their number: "at least one", "at least two", … The first one
  often does most of the work whichever it is, and the fourth none. A model that is linear in the
  single demonstrations cannot say that; it would need more rollouts than there are, and believe in
  sums that do not exist.

What comes out guides the search and explains the bundle. What is claimed is the certificate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

from optimizer.edits import Edit, conflict_groups
from optimizer.gaussian import Posterior, Row, fit
from optimizer.seeds import generator, shuffled

INTERCEPT_VARIANCE = 1.0
TASK_VARIANCE = 0.06
EDIT_VARIANCE = 0.12**2
FIRST_STEP_VARIANCE = 0.35**2
"""Of the first demonstration against none; anything from no effect to everything is plausible."""
STEP_VARIANCE = 0.15**2
"""Of each further demonstration."""
NOISE_VARIANCE = 0.2
KEEP = 0.25
"""An edit joins the bundle above so many standard deviations."""
OFF = -1
"""No level of a factor."""

Bundle = tuple[int, ...]
"""Positions of edits in the pool, ascending."""


@dataclass(frozen=True)
class Observation:
    bundle: Bundle
    task: str
    score: float


@dataclass(frozen=True)
class Effect:
    """What one edit does to the score, estimated from the rollouts with and without it."""

    position: int
    mean: float
    """For a demonstration: added as the only one."""
    sd: float
    probability_positive: float
    n_with: int
    n_without: int

    @property
    def low(self) -> float:
        return self.mean - 1.96 * self.sd

    @property
    def high(self) -> float:
        return self.mean + 1.96 * self.sd


@dataclass(frozen=True)
class Scored:
    """A bundle and what the model says its mean score is."""

    bundle: Bundle
    mean: float
    sd: float


@dataclass(frozen=True)
class Pool:
    """The edits of a search and which subsets of them are possible."""

    edits: tuple[Edit, ...]
    max_demonstrations: int = 4

    @cached_property
    def demonstrations(self) -> tuple[int, ...]:
        return tuple(i for i, edit in enumerate(self.edits) if edit.is_demonstration)

    @cached_property
    def factors(self) -> tuple[tuple[int, ...], ...]:
        """Alternatives among the other edits; at most one of each is on."""
        rest = [i for i, edit in enumerate(self.edits) if not edit.is_demonstration]
        groups = conflict_groups([self.edits[i] for i in rest])
        return tuple(tuple(rest[i] for i in members) for members in groups)

    @property
    def depth(self) -> int:
        """The largest number of demonstrations in a bundle."""
        return min(self.max_demonstrations, len(self.demonstrations))

    @cached_property
    def prior_variance(self) -> list[float]:
        steps = [FIRST_STEP_VARIANCE] + [STEP_VARIANCE] * (self.depth - 1)
        return [INTERCEPT_VARIANCE] + [EDIT_VARIANCE] * len(self.edits) + steps[: self.depth]

    def step_column(self, number: int) -> int:
        """Column of "at least `number` demonstrations"; number counts from 1."""
        return len(self.edits) + number

    def columns(self, bundle: Bundle) -> tuple[int, ...]:
        n = sum(self.edits[i].is_demonstration for i in bundle)
        steps = (self.step_column(k) for k in range(1, min(n, self.depth) + 1))
        return (0, *(1 + i for i in bundle), *steps)


def posterior(pool: Pool, observations: Iterable[Observation]) -> Posterior:
    rows = [Row(pool.columns(seen.bundle), seen.task, seen.score) for seen in observations]
    return fit(rows, pool.prior_variance, group_variance=TASK_VARIANCE, noise=NOISE_VARIANCE)


def effects(pool: Pool, observations: Sequence[Observation]) -> list[Effect]:
    """One effect per edit, in the pool's order."""
    known = posterior(pool, observations)
    found = []
    for i, edit in enumerate(pool.edits):
        columns = [1 + i, pool.step_column(1)] if edit.is_demonstration else [1 + i]
        mean, sd = known.sum_of(columns)
        n_with = sum(i in seen.bundle for seen in observations)
        found.append(
            Effect(i, mean, sd, NormalDist().cdf(mean / sd), n_with, len(observations) - n_with)
        )
    return found


# --- design


def first_wave(pool: Pool, n_blocks: int, *seed: str | int) -> list[Bundle]:
    """A balanced random design; its first block is the empty bundle.

    Numbers of demonstrations from one to the most take turns, and so do the levels of each factor,
    "off" half of the time. Demonstrations that were used least come first.
    """
    turns = n_blocks - 1
    numbers = _in_turns(range(1, pool.depth + 1), turns, *seed, "numbers")
    levels = [
        _in_turns([*factor, *[OFF] * len(factor)], turns, *seed, "factor", number)
        for number, factor in enumerate(pool.factors)
    ]
    used = dict.fromkeys(pool.demonstrations, 0)
    blocks: list[Bundle] = [()]
    for turn in range(turns):
        order = shuffled(pool.demonstrations, *seed, "demonstrations", turn)
        order.sort(key=lambda i: used[i])
        chosen = order[: numbers[turn]] if numbers else []
        for i in chosen:
            used[i] += 1
        on = [level[turn] for level in levels if level[turn] != OFF]
        blocks.append(tuple(sorted([*chosen, *on])))
    return blocks


def next_wave(
    pool: Pool, known: Posterior, n_blocks: int, taken: Iterable[Bundle], *seed: str | int
) -> list[Bundle]:
    """Bundles that are best under draws from the posterior, different from each other if
    possible.
    """
    seen = set(taken)
    blocks: list[Bundle] = []
    for block in range(n_blocks):
        bundle: Bundle = ()
        for attempt in range(8):
            theta = known.draw(generator(*seed, "draw", block, attempt))
            bundle = best_bundle(pool, theta)
            if bundle not in seen:
                break
        seen.add(bundle)
        blocks.append(bundle)
    return blocks


def best_bundle(pool: Pool, theta: Sequence[float], *, at_least: float = 0.0) -> Bundle:
    """The bundle with the highest predicted score if the columns' values were `theta`.

    An edit that is no demonstration must be worth more than `at_least`.
    """
    on = []
    for factor in pool.factors:
        best = max(factor, key=lambda i: theta[1 + i])
        if theta[1 + best] > at_least:
            on.append(best)
    ranked = sorted(pool.demonstrations, key=lambda i: -theta[1 + i])
    value, best_value, best_number = 0.0, 0.0, 0
    for number, i in enumerate(ranked[: pool.depth], start=1):
        value += theta[1 + i] + theta[pool.step_column(number)]
        if value > best_value:
            best_value, best_number = value, number
    return tuple(sorted([*on, *ranked[:best_number]]))


# --- assembly


def assemble(pool: Pool, known: Posterior, tried: Iterable[Bundle], top: int) -> list[Scored]:
    """The `top` bundles worth racing, none twice: the best by predicted score, the same without its
    weakest edit, then the next best.

    Looked at are the kept edits with every number of the best demonstrations, the same with each
    other level of each factor, and what was tried. A kept edit is one whose mean is above KEEP
    standard deviations.
    """
    mean = known.mean
    kept = []
    for factor in pool.factors:
        best = max(factor, key=lambda i: mean[1 + i])
        if mean[1 + best] > KEEP * math.sqrt(known.covariance[1 + best][1 + best]):
            kept.append(best)
    ranked = sorted(pool.demonstrations, key=lambda i: -mean[1 + i])
    candidates = set(tried)
    for number in range(pool.depth + 1):
        demonstrations = ranked[:number]
        candidates.add(tuple(sorted([*kept, *demonstrations])))
        for factor in pool.factors:
            rest = [i for i in kept if i not in factor]
            candidates.add(tuple(sorted([*rest, *demonstrations])))
            for level in factor:
                candidates.add(tuple(sorted([*rest, level, *demonstrations])))

    def scored(bundle: Bundle) -> Scored:
        return Scored(bundle, *known.sum_of(pool.columns(bundle)))

    # Shorter wins a tie: every edit costs the model some attention.
    leader, *others = sorted(
        map(scored, candidates), key=lambda item: (-item.mean, len(item.bundle), item.bundle)
    )
    plainer = _without_weakest(pool, known, leader.bundle)
    if plainer is not None:
        # Whether the least certain edit belongs there is the one thing that a race should settle.
        others = [scored(plainer), *(item for item in others if item.bundle != plainer)]
    return [leader, *others][:top]


def _without_weakest(pool: Pool, known: Posterior, bundle: Bundle) -> Bundle | None:
    """The bundle less its edit (demonstrations aside) with the lowest mean; None if it has none."""
    others = [i for i in bundle if i not in pool.demonstrations]
    if not others:
        return None
    weakest = min(others, key=lambda i: known.mean[1 + i])
    return tuple(i for i in bundle if i != weakest)


def _in_turns(values: Sequence[int], n: int, *seed: str | int) -> list[int]:
    """n values in which all of them occur equally often, up to one, in shuffled rounds."""
    result: list[int] = []
    turn = 0
    while values and len(result) < n:
        result += shuffled(values, *seed, turn)
        turn += 1
    return result[:n]
