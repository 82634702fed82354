from __future__ import annotations

import json
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    name: str
    """With its unit: `live.p95_ms`."""
    value: float
    bar: float | None
    """None: only reported."""
    is_floor: bool = False
    """Whether the value has to reach the bar; otherwise it must not exceed it."""

    @property
    def ok(self) -> bool:
        """NaN misses every bar."""
        if self.bar is None:
            return True
        return self.value >= self.bar if self.is_floor else self.value <= self.bar

    def line(self) -> str:
        value = None if math.isnan(self.value) else round(self.value, 6)
        return json.dumps({"name": self.name, "value": value, "bar": self.bar, "ok": self.ok})


def percentile(values: list[float], share: float) -> float:
    """The smallest value not exceeded by at least `share` (0 to 1) of the values; NaN if none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
