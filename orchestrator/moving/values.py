"""Values as both databases give them back, and one hash of all rows of a table.

PostgreSQL keeps JSON as numbers and text of its own: `1e2` comes back as 100, and neither NUL nor
half of a surrogate pair can be stored, in JSON or in text. `storable` makes of a value what can be;
`Digest` hashes rows so that what both mean equal is equal, in whatever order they come.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

_ODD = re.compile("[\x00\ud800-\udfff]")
_ALL = 1 << 256


def storable(value: Any) -> Any:
    """The same value where PostgreSQL can store it; else ␀ for NUL and � for half a pair."""
    if isinstance(value, str):
        return _ODD.sub(_shown, value) if _ODD.search(value) else value
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [storable(item) for item in value]
    return value


def _shown(match: re.Match[str]) -> str:
    return "␀" if match.group() == "\x00" else "�"


def plain(value: Any) -> Any:
    """What JSON can write, one form for values that both databases mean equal."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        # A whole number of JSON has no point in PostgreSQL. By its digits, not its binary value.
        return int(Decimal(repr(value))) if value.is_integer() else repr(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    if isinstance(value, Decimal):
        return f"{value:f}".rstrip("0").rstrip(".") if "." in f"{value:f}" else f"{value:f}"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, UUID):
        return value.hex
    raise TypeError(f"no form for {type(value).__name__}")


class Digest:
    """Number and hash of rows, whatever their order: SHA-256 of each, added up modulo 2²⁵⁶."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, row: Sequence[Any]) -> None:
        text = json.dumps([plain(value) for value in row], sort_keys=True, separators=(",", ":"))
        self._sum += int.from_bytes(hashlib.sha256(text.encode()).digest(), "big")
        self.rows += 1

    def hex(self) -> str:
        return f"{self._sum % _ALL:064x}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Digest) and (self.rows, self.hex()) == (other.rows, other.hex())

    __hash__ = None  # type: ignore[assignment] # it changes
