"""Many curves as bands: from least to most, the middle four fifths, and the median.

Pure. The x axis is cut into equal bins. A curve's value in a bin is that on its line at the bin's
middle, so that one with few points counts as much as one with many; the least and the most are also
those of all points in the bin, so that no peak is lost. Across a gap a curve has no line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from training.thinning import is_finite

BINS = 64
Point = tuple[float, float | None]


@dataclass(frozen=True)
class Bin:
    x: float
    n: int
    """Curves that have a value here."""
    low: float
    tenth: float
    middle: float
    ninetieth: float
    high: float


def bands(curves: Sequence[Sequence[Point]], n_bins: int = BINS) -> list[Bin]:
    """Bins without a value are left out. Points of a curve ascend."""
    places = [x for curve in curves for x, _ in curve]
    if not places:
        return []
    left, right = min(places), max(places)
    width = (right - left) / n_bins or 1.0
    middles = [left + (i + 0.5) * width for i in range(n_bins)]
    on_line: list[list[float]] = [[] for _ in middles]
    points: list[list[float]] = [[] for _ in middles]
    for curve in curves:
        _sort_in(curve, left, width, middles, on_line, points)
    made = []
    for x, lines, seen in zip(middles, on_line, points, strict=True):
        if not lines and not seen:
            continue
        lines = sorted(lines or seen)
        made.append(
            Bin(
                x=x,
                n=len(lines),
                low=min([*seen, lines[0]]),
                tenth=_quantile(lines, 0.1),
                middle=_quantile(lines, 0.5),
                ninetieth=_quantile(lines, 0.9),
                high=max([*seen, lines[-1]]),
            )
        )
    return made


def _sort_in(
    curve: Sequence[Point],
    left: float,
    width: float,
    middles: Sequence[float],
    on_line: list[list[float]],
    points: list[list[float]],
) -> None:
    last: tuple[float, float] | None = None
    next_bin = 0
    for x, y in curve:
        if y is None or not is_finite(y):
            last = None
            continue
        points[min(len(middles) - 1, int((x - left) / width))].append(y)
        if last is not None and x > last[0]:
            next_bin = max(next_bin, math.ceil((last[0] - left) / width - 0.5))
            slope = (y - last[1]) / (x - last[0])
            while next_bin < len(middles) and middles[next_bin] <= x:
                if middles[next_bin] >= last[0]:
                    on_line[next_bin].append(last[1] + slope * (middles[next_bin] - last[0]))
                next_bin += 1
        last = (x, y)


def _quantile(ordered: Sequence[float], share: float) -> float:
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])
