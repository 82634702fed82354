"""On which terms a proposer is asked. Pure; stored with the proposal as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

LISTS = ("components", "protected")
WHOLE = ("max_edits", "failed", "passed", "room_chars", "max_tokens", "runs")


@dataclass(frozen=True)
class Terms:
    """Raises ValueError naming a field that is out of range."""

    model: int | None = None
    """Id of the endpoint that is asked; None: the search's own model reflects on itself."""
    max_edits: int = 6
    """Edits of one answer; further ones are refused."""
    components: tuple[str, ...] = ()
    """That may be edited; empty: whatever the kind of reflection edits and is not protected."""
    protected: tuple[str, ...] = ()
    failed: int = 6
    """Failed rollouts in the question."""
    passed: int = 3
    """Passed ones."""
    room_chars: int = 48_000
    """Of all traces together."""
    max_tokens: int = 4_000
    """Of one answer."""
    patience_s: float = 120.0
    """How long an endpoint may be overloaded or away."""
    runs: int = 3
    """Of each query when a description is tuned."""

    def __post_init__(self) -> None:
        for name in WHOLE:
            value, least = getattr(self, name), 0 if name == "passed" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"{name} is a whole number from {least}, not {value!r}.")
        if not (math.isfinite(self.patience_s) and 0 < self.patience_s <= 3_600):
            raise ValueError(f"patience_s is above 0 and at most 3600, not {self.patience_s!r}.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Terms:
        """Raises ValueError naming an unknown or impossible field."""
        if unknown := sorted(set(data) - {field.name for field in fields(cls)}):
            raise ValueError(f"Unknown terms of a proposer: {', '.join(unknown)}.")
        values = dict(data)
        for name in LISTS:
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values)
