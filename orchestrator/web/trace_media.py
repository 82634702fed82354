"""Pictures inside the payload of an event. Pure.

A trace carries pictures as base64: as data URLs, in a text or alone, and as parts in the forms of
the model providers. None of it is ever shown as text. Pictures of a few raster formats are drawn as
thumbnails from an address of their own; everything else, SVG with its scripts included, is named
with its type and size. An address on another machine is not loaded.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DRAWN = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
"""Types that are drawn, with the bytes that such a file begins with."""
DEEPEST = 100
"""Levels in which pictures are looked for; each takes three calls of a stack shared with others."""
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)((?:;[\w.+=-]+)*);base64,([A-Za-z0-9+/=_\s-]*)")
_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")


@dataclass(frozen=True)
class Media:
    number: int
    """Counted from 0 in the order of the payload."""
    type: str
    data: str
    """Base64 as it came."""

    @property
    def size_bytes(self) -> int:
        letters = sum(1 for c in self.data if not c.isspace() and c != "=")
        return letters * 3 // 4

    @property
    def is_drawn(self) -> bool:
        head = self.decoded(64)
        return head is not None and self.type in DRAWN and head.startswith(DRAWN[self.type])

    @property
    def text(self) -> str:
        return f"[{self.type}, {self.size_bytes:,} bytes]"

    def decoded(self, letters: int | None = None) -> bytes | None:
        """The file, or its beginning; None when this is no base64."""
        data = re.sub(r"\s+", "", self.data if letters is None else self.data[:letters])
        data = data.replace("-", "+").replace("_", "/").rstrip("=")
        if len(data) % 4 == 1:
            return None
        try:
            return base64.b64decode(data + "=" * (-len(data) % 4), validate=True)
        except (binascii.Error, ValueError):
            return None


def split_media(payload: Any) -> tuple[Any, list[Media]]:
    """The payload with a short name in the place of each medium, and the media."""
    found: list[Media] = []
    return _walk(payload, found, 0), found


def _walk(value: Any, found: list[Media], depth: int) -> Any:
    if isinstance(value, str):
        return _in_text(value, found) if ";base64," in value else value
    if depth > DEEPEST:
        return value
    if isinstance(value, list):
        return [_walk(item, found, depth + 1) for item in value]
    if isinstance(value, dict):
        return {key: _part(value, key, found, depth) for key in value}
    return value


def _part(parent: Mapping[str, Any], key: str, found: list[Media], depth: int) -> Any:
    """Base64 alone in a field, its type in a neighbour: how providers and MCP send pictures."""
    value = parent[key]
    if key == "data" and isinstance(value, str) and len(value) >= 32:
        for name in ("media_type", "mimeType", "mime_type"):
            if isinstance(kind := parent.get(name), str) and _TYPE.fullmatch(kind):
                return _kept(kind, value, found)
    return _walk(value, found, depth + 1)


def _in_text(text: str, found: list[Media]) -> str:
    return _DATA_URL.sub(lambda match: _kept(match[1], match[3], found), text)


def _kept(kind: str, data: str, found: list[Media]) -> str:
    medium = Media(len(found), kind.lower(), data)
    found.append(medium)
    return medium.text
