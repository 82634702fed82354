"""An event that came from outside as a card: content, data and what to beware of. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from orchestrator.traces.exact import Number, parse
from orchestrator.web.text import cell
from orchestrator.web.trace import Card, Segment

ROLES = {
    "user": "user",
    "turn": "agent",
    "agent": "agent",
    "retrieval": "env",
    "model_call": "agent",
    "tool_call": "env",
    "observation": "env",
    "verdict": "judge",
    "score": "judge",
}
"""Look of a card by the producer's kind of event."""
_TOLD = frozenset(
    {"project", "rollout", "id", "seq", "kind", "name", "content", "data", "started_at", "ended_at"}
)
FLAG_WORDS = {
    "assumed_utc": "times had no offset and were read as UTC",
    "time_adjusted": "a time was adjusted",
    "non_finite": "holds numbers that are not finite",
    "unpaired_surrogate": "holds an unpaired surrogate",
    "bidi_control": "holds direction characters",
    "invisible_chars": "holds invisible characters",
    "media_broken": "holds a medium that cannot be read",
    "preview_cut": "is shown as a preview",
}


def outside(seq: int, payload: Mapping[str, Any], at: datetime) -> Card:
    """`payload` is the one of `orchestrator.traces.services`, its media already named."""
    event = parse(str(payload.get("body") or "{}"))
    event = event if isinstance(event, dict) else {"content": event}
    kind, name = _text(event.get("kind")), _text(event.get("name"))
    content = event.get("content")
    texts = _parts(content)
    rest = {key: value for key, value in event.items() if key not in _TOLD}
    data = event.get("data")
    shown = {
        "role": ROLES.get(kind, ""),
        "name": name,
        "id": _text(event.get("id")),
        "parent": _text(rest.pop("parent", None)),
        "number": _text(event.get("seq")),
        "started_at": _text(event.get("started_at")),
        "ended_at": _text(event.get("ended_at")),
        "data": pretty(data) if data is not None else "",
        "rest": pretty(rest) if rest else "",
        "warnings": [FLAG_WORDS.get(flag, flag) for flag in payload.get("flags") or ()],
    }
    hidden = payload.get("hidden_chars")
    return Card(
        seq=seq,
        kind="outside",
        at=at,
        title=kind or "event",
        outline=cell(f"{kind} {name}: {' '.join(texts)}" if texts else f"{kind} {name}", 80),
        meta="",
        payload=shown,
        segments=[Segment("env_output", "", text, 0, is_trained=True) for text in texts],
        hidden_chars=hidden if isinstance(hidden, int) else 0,
    )


def _parts(content: Any) -> list[str]:
    """Texts of a list of parts, in order; anything but text as JSON."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return [
            part["text"] if isinstance(part.get("text"), str) else pretty(part) for part in content
        ]
    return [pretty(content)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else pretty(value)


def pretty(value: Any, indent: str = "") -> str:
    """Indented JSON with letters as they are and the digits of numbers as they were sent."""
    if isinstance(value, Number):
        return value.token
    deeper = f"{indent}  "
    if isinstance(value, dict) and value:
        if set(value) == {"$number"} and isinstance(value["$number"], str):
            return value["$number"]
        lines = [f"{_quoted(key)}: {pretty(part, deeper)}" for key, part in value.items()]
        return "{\n" + ",\n".join(f"{deeper}{line}" for line in lines) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        lines = [pretty(part, deeper) for part in value]
        return "[\n" + ",\n".join(f"{deeper}{line}" for line in lines) + f"\n{indent}]"
    return _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
