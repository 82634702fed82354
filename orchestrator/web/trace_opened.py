"""Events from outside with their JSON opened: for the raw view and for finding. Pure.

The log holds such an event as the text of its JSON (`body`), so that nothing of it is changed.
"""

from __future__ import annotations

import json
from typing import Any

from orchestrator.traces.exact import Number, TooDeep, parse

KIND = "outside"
DEEPEST = 40
"""Levels that are indented; deeper ones are written in one line, or spaces would fill the page."""


def opened(kind: str, payload: Any) -> Any:
    """The payload with its `body` read; as it is for other kinds, and where it cannot be read."""
    if kind != KIND or not isinstance(payload, dict) or not isinstance(payload.get("body"), str):
        return payload
    try:
        event = parse(payload["body"])
    except (ValueError, TooDeep, RecursionError):
        return payload
    return {
        **{k: v for k, v in payload.items() if k not in ("body", "said", "name")},
        "event": event,
    }


def pretty(value: Any) -> str:
    """Indented JSON with the digits that were sent, however deep."""
    parts: list[str] = []
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, _Sign):
            parts.append(item.text)
        elif isinstance(item, Number):
            parts.append(item.token)
        elif isinstance(item, dict | list) and item:
            stack.extend(reversed(_inside(item, depth)))
        else:
            parts.append(json.dumps(item, ensure_ascii=False, default=str))
    return "".join(parts)


class _Sign:
    def __init__(self, text: str) -> None:
        self.text = text


def _inside(item: dict[str, Any] | list[Any], depth: int) -> list[tuple[Any, int]]:
    is_flat = depth >= DEEPEST
    space = "" if is_flat else "\n" + "  " * (depth + 1)
    between = ", " if is_flat else f",{space}"
    first, last = "{}" if isinstance(item, dict) else "[]"
    found: list[tuple[Any, int]] = []
    rows = item.items() if isinstance(item, dict) else ((None, part) for part in item)
    for number, (key, part) in enumerate(rows):
        sign = between if number else f"{first}{space}"
        if isinstance(item, dict):
            sign += f"{json.dumps(str(key), ensure_ascii=False)}: "
        found += [(_Sign(sign), 0), (part, depth + 1)]
    return [*found, (_Sign(("" if is_flat else "\n" + "  " * depth) + last), 0)]
