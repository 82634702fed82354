"""Checks of the fields that every task has, for rows of tables and for forms alike.

Each takes what was given, of any type, and returns what is stored; `ValueError` goes on after the
field's name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from orchestrator.environments.authoring import values
from orchestrator.environments.authoring.columns import COMMON
from orchestrator.environments.session import EpisodeSettings

MAX_SEEDS = 1_000
SPLITS = ("train", "select", "test")
ROLES = ("system", "user", "assistant", "tool")
LIMITS = tuple(f.name for f in fields(EpisodeSettings) if f.name != "headers")
"""Limits of an episode that a task may set."""
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:\-]{0,63}")
_FAMILY = next(field for field in COMMON if field.name == "family")


def check_key(value: Any) -> str:
    text = str(value).strip() if isinstance(value, str | int) else ""
    if not _KEY.fullmatch(text):
        raise ValueError(
            "must be 1 to 64 letters, digits, dots, dashes, colons or underscores, "
            "and begin with a letter or digit"
        )
    return text


def check_split(value: Any) -> str:
    text = value.strip().casefold() if isinstance(value, str) else ""
    if text not in SPLITS:
        raise ValueError(f"is {json.dumps(value)[:40]}; use train, select or test")
    return text


def check_family(value: Any) -> str:
    text = values.from_json(_FAMILY, value).strip()
    if len(text) > 64:
        raise ValueError(f"has {len(text)} characters; the limit is 64")
    return str(text)


def check_object(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        value = values.parse_json(value)
    if not isinstance(value, dict):
        raise ValueError("must be a JSON object: {…}")
    return value


def check_limits(value: Any) -> dict[str, Any]:
    limits = check_object(value)
    if unknown := sorted(set(limits) - set(LIMITS)):
        raise ValueError(f"has no limit {unknown[0]}; known: {', '.join(LIMITS)}")
    EpisodeSettings(**limits)
    return limits


def check_seeds(value: Any) -> list[int]:
    seeds = [values.whole_number(item) for item in (value if isinstance(value, list) else [value])]
    if len(seeds) > MAX_SEEDS:
        raise ValueError(f"has {len(seeds):,} seeds; the limit is {MAX_SEEDS:,}")
    if any(seed < 0 for seed in seeds):
        raise ValueError("must not be negative")
    return seeds


def check_reference(value: Any) -> list[dict[str, str]]:
    """Chat messages: `[{"role": "assistant", "content": "…"}, …]`."""
    if isinstance(value, str):
        value = values.parse_json(value)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError('must be a list of messages: [{"role": "assistant", "content": "…"}]')
    for number, item in enumerate(value, start=1):
        if item.get("role") not in ROLES or not isinstance(item.get("content"), str):
            raise ValueError(
                f"message {number} needs role ({', '.join(ROLES)}) and content (a text)"
            )
    return value


CHECKS: dict[str, Callable[[Any], Any]] = {
    "key": check_key,
    "split": check_split,
    "family": check_family,
    "difficulty": values.number,
    "reset": check_object,
    "limits": check_limits,
    "seeds": check_seeds,
    "reference": check_reference,
    "spec": check_object,
}
