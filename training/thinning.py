"""A long curve drawn with few points, without losing a peak, a trough or a gap.

Pure. The curve is cut into stretches of equal length; of each the least and the most stay. What is
not finite is a gap: between two points that stay, the first and the last of the gaps between them
stay too, so that no line is drawn over what was not measured.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TypeVar

X = TypeVar("X", int, float)

LEAST = 14


def thinned(pairs: Sequence[tuple[X, float | None]], most: int) -> list[tuple[X, float | None]]:
    """At most `most` of them, in order; all of them if there are no more.

    The first and last point, and the least and the most of all, always stay: with the gaps beside
    them they are up to `LEAST`, so `most` must not be less.
    """
    assert most >= LEAST
    if len(pairs) <= most:
        return list(pairs)
    n_stretches = max(1, (most - 2) // 2)
    while True:
        kept = _kept(pairs, n_stretches)
        if len(kept) <= most or n_stretches == 1:
            return [pairs[i] for i in kept]
        n_stretches //= 2


def _kept(pairs: Sequence[tuple[X, float | None]], n_stretches: int) -> list[int]:
    finite = [i for i, (_, value) in enumerate(pairs) if is_finite(value)]
    if not finite:
        return sorted({0, len(pairs) - 1})
    kept: set[int] = {finite[0], finite[-1]}
    size = math.ceil(len(pairs) / n_stretches)
    stretches: dict[int, list[int]] = {}
    for i in finite:
        stretches.setdefault(i // size, []).append(i)
    for stretch in stretches.values():
        kept.add(min(stretch, key=lambda i: pairs[i][1] or 0.0))
        kept.add(max(stretch, key=lambda i: pairs[i][1] or 0.0))
    gaps = _gaps_between([-1, *sorted(kept), len(pairs)], pairs)
    return sorted(kept | gaps)


def _gaps_between(kept: Sequence[int], pairs: Sequence[tuple[X, float | None]]) -> set[int]:
    """First and last gap of those between each two that are kept."""
    found: set[int] = set()
    for left, right in itertools.pairwise(kept):
        gaps = [i for i in range(left + 1, right) if not is_finite(pairs[i][1])]
        found |= {gaps[0], gaps[-1]} if gaps else set()
    return found


def is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)
