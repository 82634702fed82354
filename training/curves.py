"""The curves of a training: one value per step and quantity, and how they are packed.

Pure. A value that is missing or not finite is a gap. Packed are little-endian single floats: the
steps, then the values, a gap as NaN; a step is exact up to 16 million, a value to seven digits.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from training.health import Chart, number
from training.thinning import is_finite

Row = Mapping[str, Any]


def joined(steps: Sequence[Row], evaluations: Sequence[Row]) -> list[Row]:
    """A row per step, with what was measured after it; step 0 is before the first."""
    by_step: dict[int, dict[str, Any]] = {
        int(metrics.get("step") or place): {**metrics, "step": int(metrics.get("step") or place)}
        for place, metrics in enumerate(steps, start=1)
    }
    for found in evaluations:
        step = int(found["step"])
        row = by_step.setdefault(step, {"step": step, "is_evaluation": True})
        row["held_out"] = found.get("mean")
        row |= {key: value for key, value in found.items() if str(key).startswith("pool_")}
    return [by_step[step] for step in sorted(by_step)]


def series(chart: Chart, rows: Sequence[Row]) -> list[tuple[int, float | None]]:
    """By step; of a quantity that is measured now and then only where it was."""
    pairs = [
        (int(row["step"]), chart.value(row))
        for row in rows
        if not (row.get("is_evaluation") and not chart.is_sparse)
    ]
    return [pair for pair in pairs if pair[1] is not None] if chart.is_sparse else pairs


def without_score(rows: Sequence[Row]) -> list[tuple[int, float | None]]:
    """How many rollouts of each step had no score and were left out of the reward, where any."""
    counts = ((int(row["step"]), number(row, "reward_masked", "masked")) for row in rows)
    return [(step, count) for step, count in counts if count]


def packed(pairs: Sequence[tuple[float, float | None]]) -> bytes:
    values = array("f", [x for x, _ in pairs])
    values.extend(
        value if value is not None and is_finite(value) else math.nan for _, value in pairs
    )
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def unpacked(data: bytes) -> list[tuple[float, float | None]]:
    values = array("f", data)
    if sys.byteorder == "big":
        values.byteswap()
    n = len(values) // 2
    return [
        (x, None if math.isnan(value) else value)
        for x, value in zip(values[:n], values[n:], strict=True)
    ]
