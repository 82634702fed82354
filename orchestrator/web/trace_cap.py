"""Cards of a long trace carry the beginning of their texts; the rest comes when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.web.trace import Capped, Card

LINES = 20
CHARS = 4_000
"""A card of 4,000 characters is a screen and a half; twenty of them fit into a first answer."""
MESSAGES = 12
_TEXTS = (
    "prompt",
    "text",
    "content",
    "command",
    "answer",
    "reason",
    "message",
    "skills",
    "tool",
    "json",
    "data",
)


def capped(card: Card, *, lines: int = LINES, chars: int = CHARS) -> Card:
    """The card with its texts cut, and what was cut in `capped`; itself when all of it fits."""
    cutter = _Cutter(lines, chars)
    payload: dict[str, Any] = {
        key: cutter.cut(value) if key in _TEXTS and isinstance(value, str) else value
        for key, value in card.payload.items()
    }
    if isinstance(messages := payload.get("messages"), list):
        payload["messages"] = cutter.messages(messages)
    if isinstance(functions := payload.get("functions"), list):
        payload["functions"] = [cutter.texts(function) for function in functions]
    if isinstance(arguments := payload.get("shown_arguments"), list):
        payload["shown_arguments"] = [
            {**one, "text": cutter.cut(str(one["text"]))} for one in arguments
        ]
    segments = [replace(segment, text=cutter.cut(segment.text)) for segment in card.segments]
    body, reasoning = cutter.cut(card.body), cutter.cut(card.reasoning)
    if not cutter.hidden:
        return card
    return replace(
        card,
        payload=payload,
        segments=segments,
        body=body,
        reasoning=reasoning,
        capped=Capped(cutter.shown_lines, cutter.all_lines, cutter.hidden + card.hidden_chars),
    )


class _Cutter:
    def __init__(self, lines: int, chars: int) -> None:
        self.lines, self.chars = lines, chars
        self.shown_lines = self.all_lines = self.hidden = 0
        """Lines of the texts that were cut, and characters left out."""

    def cut(self, text: str) -> str:
        shown = text[: self.chars]
        parts = shown.splitlines(keepends=True)
        # One line more than is allowed is shown rather than cut.
        if len(parts) > self.lines + 1:
            shown = "".join(parts[: self.lines])
        if len(shown) < len(text):
            self.hidden += len(text) - len(shown)
            self.shown_lines += len(shown.splitlines())
            self.all_lines += text.count("\n") + (not text.endswith("\n"))
        return shown

    def texts(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        return {key: self.cut(v) if isinstance(v, str) else v for key, v in value.items()}

    def messages(self, messages: list[Any]) -> list[Any]:
        for left_out in messages[MESSAGES:]:
            self.hidden += len(str(left_out))
        return [self.texts(message) for message in messages[:MESSAGES]]
