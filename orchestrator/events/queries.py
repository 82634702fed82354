from __future__ import annotations

from orchestrator.events.models import Event

READ_LIMIT = 500


def events_after(stream_id: int, seq: int, limit: int = READ_LIMIT) -> list[Event]:
    """The events with a sequence above `seq`, in order, at most `limit`."""
    return list(Event.objects.filter(stream_id=stream_id, seq__gt=seq).order_by("seq")[:limit])
