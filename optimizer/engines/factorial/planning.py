"""What the rollouts so far say of the edits, and which bundles to run next. Pure functions.

They remember their answers: an engine that is run again from its start meets the same questions,
and only the last one is new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from optimizer.engines.factorial.design import balanced
from optimizer.engines.factorial.pool import NOISE_VARIANCE, TASK_VARIANCE, Bundle, Pool
from optimizer.gaussian import Posterior, Row, fit
from optimizer.seeds import generator

SMALL = (1, 2, 3, 4, 5)
REDRAWS = 8
"""Tries for a bundle that was not run yet."""
OPTIMISM, WORTH_TRYING = 1.3, 0.01
"""An edit stays on trial while its mean plus so many standard deviations is above that."""


@dataclass(frozen=True)
class Observation:
    bundle: Bundle
    task: str
    score: float


@dataclass(frozen=True)
class Sizes:
    bundles: int
    active: int
    """Edits on trial at a time, demonstrations aside."""
    is_early: bool = False
    """Then every other bundle is small: were a long prompt to spoil everything, bundles of half of
    the edits would all look alike.
    """


@lru_cache(maxsize=64)
def fitted(pool: Pool, seen: tuple[Observation, ...]) -> Posterior:
    rows = [Row(pool.columns(o.bundle), o.task, o.score) for o in seen]
    return fit(rows, pool.prior_variance, group_variance=TASK_VARIANCE, noise=NOISE_VARIANCE)


@lru_cache(maxsize=1024)
def with_leaders(pool: Pool, seen: tuple[Observation, ...], n: int) -> Pool:
    """The pool with columns for the pairs of the n most promising edits."""
    if not n or not seen or len(pool.others) < 2:
        return pool
    known = fitted(pool, seen)

    def promise(i: int) -> float:
        mean, sd = known.sum_of((1 + i,))
        return mean + sd

    ranked = sorted(pool.others, key=lambda i: (-promise(i), i))
    return replace(pool, leaders=tuple(sorted(ranked[:n])))


@lru_cache(maxsize=1024)
def next_wave(
    pool: Pool,
    seen: tuple[Observation, ...],
    taken: tuple[Bundle, ...],
    sizes: Sizes,
    seed: int,
) -> tuple[Bundle, ...]:
    """Bundles that are best under draws from the posterior; none of `taken` if that is possible.

    Where demonstrations are on trial and no edit was tried yet, a balanced design comes first.
    """
    if pool.demonstrations and not any(o.bundle for o in seen):
        return tuple(balanced(pool, sizes.bundles, seed))
    known = fitted(pool, seen)
    allowed = active(pool, seen, sizes.active)
    found: list[Bundle] = []
    avoided = set(taken)
    for block in range(sizes.bundles):
        bundle: Bundle = ()
        for attempt in range(REDRAWS if taken else 1):
            draw = generator(seed, block, attempt)
            most = draw.choice(SMALL) if sizes.is_early and block % 2 else None
            bundle = pool.best(known.draw(draw), allowed, most)
            if bundle not in avoided:
                break
        if taken:
            avoided.add(bundle)
        found.append(bundle)
    return tuple(found)


@lru_cache(maxsize=1024)
def active(pool: Pool, seen: tuple[Observation, ...], most: int) -> tuple[int, ...]:
    """Positions of the edits that stay on trial: those that may still be worth something."""
    known = fitted(pool, seen)
    promising = []
    for i in range(len(pool.edits)):
        mean, sd = known.sum_of(pool.effect_columns(i))
        if mean + OPTIMISM * sd > WORTH_TRYING:
            promising.append((-(mean + sd), i))
    demonstrations = [i for _, i in promising if pool.edits[i].is_demonstration]
    others = sorted(p for p in promising if not pool.edits[p[1]].is_demonstration)
    return tuple(sorted([*demonstrations, *(i for _, i in others[:most])]))
