"""Where the words of an event are, for kinds whose payload does not hold all of its text.

A source is given events of its kind, (stream id, sequence, payload), and gives what to read of each
instead of the payload. It may ask the database, once for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.events.search_text import event_words

Told = Sequence[tuple[int, int, Any]]
Source = Callable[[Told], Sequence[Any]]
_sources: dict[str, Source] = {}


def register(kind: str, source: Source) -> None:
    """Raises ValueError for a kind that somebody else tells of."""
    if _sources.setdefault(kind, source) is not source:
        raise ValueError(f"two sources of the words of {kind!r}")


def words_of_events(events: Sequence[tuple[int, int, int, int, str, Any]]) -> list[list[str]]:
    """Of events as id, project, stream, sequence, kind and payload; none for kinds not indexed."""
    texts: dict[int, Any] = {}
    for kind in {event[4] for event in events} & set(_sources):
        own = [event for event in events if event[4] == kind]
        read = _sources[kind]([(event[2], event[3], _loaded(event[5])) for event in own])
        texts |= {event[0]: text for event, text in zip(own, read, strict=True)}
    return [
        event_words(event[4], texts[event[0]] if event[0] in texts else _loaded(event[5]))
        for event in events
    ]


def _loaded(payload: Any) -> Any:
    return json.loads(payload) if isinstance(payload, str) else payload
