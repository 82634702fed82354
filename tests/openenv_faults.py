"""The cases of `tests/vectors/openenv_faults.json`, variants merged and notation expanded."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VECTORS = json.loads(Path("tests/vectors/openenv_faults.json").read_text(encoding="utf-8"))


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(base), **copy.deepcopy(changes)}


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and content of every case and of every variant."""
    for case in VECTORS["cases"]:
        for variant in [{"name": ""}, *case.get("variants", [])]:
            whole = merged(case, {})
            whole["provoke"] = merged(case["provoke"], variant.get("provoke", {}))
            whole["expect"] = merged(case["expect"], variant.get("expect", {}))
            whole["also_allowed_cause"] = variant.get("also_allowed_cause")
            parts = (case["id"], case["name"], variant["name"])
            yield "-".join(part for part in parts if part), whole


def expanded(value: Any) -> Any:
    """The file's notation for long texts."""
    if isinstance(value, dict):
        if set(value) == {"$repeat"}:
            text, count = value["$repeat"]
            return text * count
        if set(value) == {"$concat"}:
            return "".join(expanded(part) for part in value["$concat"])
        return {key: expanded(item) for key, item in value.items()}
    return [expanded(item) for item in value] if isinstance(value, list) else value


def outcomes(case: dict[str, Any]) -> list[dict[str, Any]]:
    """What is accepted, the stated outcome first."""
    expect = case["expect"]
    allowed = [expect, *expect.get("also_allowed", [])]
    if case.get("also_allowed_cause"):
        allowed.append({**expect, "cause": case["also_allowed_cause"]})
    return allowed
