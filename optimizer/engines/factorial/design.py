"""A balanced random design for the first wave, where demonstrations are on trial."""

from __future__ import annotations

from collections.abc import Sequence

from optimizer.engines.factorial.pool import Bundle, Pool
from optimizer.seeds import shuffled

OFF = -1
"""No level of a factor."""


def balanced(pool: Pool, n_blocks: int, *seed: str | int) -> list[Bundle]:
    """Bundles of which the first is empty.

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


def _in_turns(values: Sequence[int], n: int, *seed: str | int) -> list[int]:
    """n values in which all of them occur equally often, up to one, in shuffled rounds."""
    result: list[int] = []
    turn = 0
    while values and len(result) < n:
        result += shuffled(values, *seed, turn)
        turn += 1
    return result[:n]
