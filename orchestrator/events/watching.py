"""Who hears of an event while it is written.

A watcher runs inside the transaction of the append, so what it writes is committed with the event
or not at all. Only kinds that tell of an end or of a turn are watched; the steps of rollouts
(`append_at_once`) are not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Watcher = Callable[[int, int, str, Mapping[str, Any]], None]
"""Called with stream id, sequence, kind and payload."""

_watchers: dict[str, Watcher] = {}


def watch(kinds: Iterable[str], watcher: Watcher) -> None:
    """Raises ValueError for a kind that somebody else watches."""
    for kind in kinds:
        if _watchers.setdefault(kind, watcher) is not watcher:
            raise ValueError(f"two watchers of {kind!r}")


def watcher_of(kind: str) -> Watcher | None:
    return _watchers.get(kind)
