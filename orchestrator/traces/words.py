"""What full-text search reads of an event from outside: what is shown of it, in its full length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Q

from orchestrator.traces.exact import Number, leaves, parse
from orchestrator.traces.models import OutsideEvent

_AT_ONCE = 200


def words_source(events: Sequence[tuple[int, int, Any]]) -> list[Any]:
    """For `orchestrator.events.search_sources`; one query where previews were cut."""
    cut = [(stream, seq) for stream, seq, payload in events if payload.get("hidden_chars")]
    whole: dict[tuple[int, int], str] = {}
    for start in range(0, len(cut), _AT_ONCE):
        wanted = Q()
        for stream, seq in cut[start : start + _AT_ONCE]:
            wanted |= Q(owner__rollout__stream_id=stream, seq=seq)
        rows = OutsideEvent.objects.filter(wanted)
        whole |= {
            (stream, seq): body
            for stream, seq, body in rows.values_list("owner__rollout__stream_id", "seq", "body")
        }
    return [
        searched(parse(whole.get((stream, seq)) or payload.get("body") or "null"))
        for stream, seq, payload in events
    ]


def searched(event: Any) -> list[Any]:
    """Its texts, keys and numbers."""
    if not isinstance(event, Mapping):
        return []
    shown = [event.get(name) for name in ("kind", "name", "content", "data")]
    return [leaf.token if isinstance(leaf, Number) else leaf for leaf in leaves(shown)]
