"""Transcripts as JSON: what a golden case keeps, so that it stays when its rollout goes.

Fields that have their default are not written; unknown fields are refused, so that a case is never
graded on less than it says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from rubrics.types import Step, Transcript


def to_json(transcript: Transcript) -> dict[str, Any]:
    found = _written(transcript)
    if transcript.steps:
        found["steps"] = [_written(step) for step in transcript.steps]
    return found


def from_json(data: Mapping[str, Any]) -> Transcript:
    """Raises ValueError, which names the field, for anything but what `to_json` writes."""
    given = _known(Transcript, data, "transcript")
    try:
        steps = tuple(
            Step(**_known(Step, step, f"steps[{i}]"))
            for i, step in enumerate(given.get("steps", ()))
        )
        return Transcript(**{**given, "steps": steps})
    except TypeError as exc:
        raise ValueError(f"not a transcript: {exc}") from exc


def _written(value: Transcript | Step) -> dict[str, Any]:
    found = {}
    for item in fields(value):
        held = getattr(value, item.name)
        default = item.default
        if default is MISSING and item.default_factory is not MISSING:
            default = item.default_factory()
        if item.name != "steps" and held != default:
            found[item.name] = dict(held) if isinstance(held, Mapping) else held
    return found


def _known(cls: type[Transcript] | type[Step], data: Any, at: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError(f"{at}: accepts an object")
    names = {item.name for item in fields(cls)}
    unknown = sorted(set(data) - names)
    if unknown:
        raise ValueError(f"{at}.{unknown[0]}: unknown; accepts {', '.join(sorted(names))}")
    return dict(data)
