"""Keys of an installation ↔ places in an archive, which count from 1 in each table."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable


class Places:
    """Keys in growing order; eight bytes each, since a project has millions of rows."""

    def __init__(self) -> None:
        self._keys: dict[str, array[int]] = {}

    def add(self, table: str, keys: Iterable[int]) -> None:
        self._keys.setdefault(table, array("q")).extend(keys)

    def count(self, table: str) -> int:
        return len(self._keys.get(table, ()))

    def of(self, table: str, key: int) -> int | None:
        """Of a row; None where it is not in the archive."""
        keys = self._keys.get(table, array("q"))
        at = bisect_left(keys, key)
        return at + 1 if at < len(keys) and keys[at] == key else None

    def key(self, table: str, place: int) -> int | None:
        """Of the row at a place."""
        keys = self._keys.get(table, array("q"))
        return keys[place - 1] if 0 < place <= len(keys) else None
