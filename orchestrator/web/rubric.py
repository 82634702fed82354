"""A stored rubric spec, read for showing. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def negative_criteria(spec: Mapping[str, Any]) -> frozenset[str]:
    """Ids of the criteria whose verdict is good when it is low."""
    return frozenset(c["id"] for c in criteria_of(spec) if c["negative"])


def criteria_of(spec: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Criteria of a stored spec with defaults filled in for reading."""
    shown = []
    for raw in spec.get("criteria") or []:
        if not isinstance(raw, dict):
            continue
        weight = raw.get("weight", 1)
        shown.append(
            {
                "id": raw.get("id", ""),
                "name": raw.get("name") or raw.get("id", ""),
                "kind": str(raw.get("kind", "")).replace("_", " "),
                "params": raw.get("params") or {},
                "weight": weight,
                "bars": [step < weight for step in range(10)],
                "required": bool(raw.get("required")),
                "negative": bool(raw.get("negative")),
                "gate": bool(raw.get("gate")),
                "threshold": raw.get("threshold", 0.5),
                "scope": str(raw.get("scope", "")).replace("_", " "),
            }
        )
    return shown
