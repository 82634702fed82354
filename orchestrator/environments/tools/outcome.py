"""What a call of a tool brings, as OpenEnv's observations say it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_TEXT_CHARS = 20_000
"""Longer results are cut, with a mark."""


@dataclass(frozen=True)
class ToolInfo:
    """A tool as agents are told of it."""

    name: str
    description: str
    input_schema: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": dict(self.input_schema),
        }


@dataclass(frozen=True)
class Outcome:
    """A result, or the failure of a call: exactly one of them is set."""

    result: Any = None
    error: Mapping[str, str] | None = None


def failed(error_type: str, message: str) -> Outcome:
    """`error_type` is one of openenv's: execution_error, invalid_args, transport_error,
    tool_not_found, timeout.
    """
    return Outcome(error={"error_type": error_type, "message": message})


def shown(value: Any) -> Outcome:
    """A function's value. `TypeError` or `ValueError` for what is not JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    json.dumps(value, allow_nan=False)
    return of_text(text, data=value)


def of_text(text: str, *, data: Any = None, is_error: bool = False) -> Outcome:
    """In the shape of MCP's results."""
    data = data if len(text) <= MAX_TEXT_CHARS else None
    return Outcome(
        result={
            "content": [{"type": "text", "text": cut(text)}],
            "data": data,
            "is_error": is_error,
        }
    )


def cut(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    return f"{text[:MAX_TEXT_CHARS]}\n[cut: {len(text)} characters in all]"
