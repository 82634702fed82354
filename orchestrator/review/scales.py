"""What a person may say of a criterion, with the key for it. Pure.

A judge's scale is taken over where a person can choose from it by one key: yes and no, or up to
eight whole steps. A finer scale takes a typed number. Whatever code decides is yes or no.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LAST_KEY = 9


@dataclass(frozen=True)
class Choice:
    key: str
    """The digit that chooses it."""
    said: str
    """What a form sends for it: the value on the criterion's own scale, or `na`."""
    label: str
    text: str = ""
    """What the value means, in the author's words."""


@dataclass(frozen=True)
class MarkScale:
    """Of one criterion."""

    id: str
    name: str
    question: str
    is_negative: bool
    threshold: float
    min: float
    max: float
    choices: tuple[Choice, ...]
    is_typed: bool = False
    """A number between `min` and `max` is typed; the only choice is `na`."""

    def read(self, said: str) -> tuple[str, float | None]:
        """(state, value from 0 to 1) of what a form sent.

        Raises ValueError with what is accepted.
        """
        if said == "na":
            return "not_applicable", None
        try:
            number = float(said)
        except ValueError:
            number = math.nan
        known = self.is_typed or said in {choice.said for choice in self.choices}
        if not (known and math.isfinite(number) and self.min <= number <= self.max):
            raise ValueError(f"{self.name}: accepts {self.accepts}, got “{said[:40]}”")
        return "scored", (number - self.min) / (self.max - self.min)

    @property
    def accepts(self) -> str:
        if self.is_typed:
            return f"a number from {plain(self.min)} to {plain(self.max)}, or n/a"
        return ", ".join(choice.label for choice in self.choices)

    @property
    def has_meanings(self) -> bool:
        """Whether the author wrote what a value means."""
        return any(choice.text for choice in self.choices if choice.said != "na")

    def said_of(self, state: str, value: float | None) -> str:
        """What a form would have sent for a stored mark."""
        if state == "not_applicable" or value is None:
            return "na"
        number = self.min + value * (self.max - self.min)
        return min(
            (choice.said for choice in self.choices if choice.said != "na"),
            key=lambda said: abs(float(said) - number),
            default=plain(number),
        )

    def label_of(self, state: str, value: float | None) -> str:
        said = self.said_of(state, value)
        return next((choice.label for choice in self.choices if choice.said == said), said)

    def passes(self, value: float) -> bool:
        """Whether a value is a good one for the rollout."""
        return (value < self.threshold) if self.is_negative else (value >= self.threshold)


def plain(number: float) -> str:
    return str(int(number)) if number == int(number) else f"{number:.6g}"


def scales_of(spec: Mapping[str, Any], wanted: Sequence[str] = ()) -> tuple[MarkScale, ...]:
    """Of the criteria of a stored rubric in its order; `wanted` narrows to these ids."""
    listed = [raw for raw in spec.get("criteria") or [] if isinstance(raw, dict)]
    return tuple(_scale(raw) for raw in listed if not wanted or raw.get("id") in wanted)


def _scale(raw: Mapping[str, Any]) -> MarkScale:
    params = raw.get("params") if isinstance(raw.get("params"), dict) else {}
    assert isinstance(params, dict)
    anchors = params.get("anchors") if isinstance(params.get("anchors"), dict) else {}
    assert isinstance(anchors, dict)
    low, high = 0.0, 1.0
    if params.get("scale") == "scale":
        low, high = _number(params.get("min"), 0.0), _number(params.get("max"), 1.0)
        if not low < high:
            low, high = 0.0, 1.0
    said = _steps(params, low, high)
    choices = [
        Choice(str(i), value, label, _meaning(anchors, value, label))
        for i, (value, label) in enumerate(said, 1)
    ]
    choices.append(Choice(str(len(choices) + 1), "na", "n/a", "does not concern this rollout"))
    return MarkScale(
        id=str(raw.get("id", "")),
        name=str(raw.get("name") or raw.get("id", "")),
        question=str(params.get("question") or ""),
        is_negative=bool(raw.get("negative")),
        threshold=_number(raw.get("threshold"), 0.5),
        min=low,
        max=high,
        choices=tuple(choices),
        is_typed=not said,
    )


def _steps(params: Mapping[str, Any], low: float, high: float) -> list[tuple[str, str]]:
    if params.get("scale") != "scale":
        return [("1", "yes"), ("0", "no")]
    if low != int(low) or high != int(high) or high - low + 2 > LAST_KEY or high - low < 2:
        return []
    return [(str(n), str(n)) for n in range(int(low), int(high) + 1)]


def _meaning(anchors: Mapping[str, Any], value: str, label: str) -> str:
    found = anchors.get(value) or anchors.get(label) or anchors.get(f"{value}.0")
    return str(found) if found else ""


def _number(value: Any, default: float) -> float:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if ok else default
