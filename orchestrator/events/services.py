"""Writing the log. An append is one transaction: fence, counter, rows, wake-up.

The counter is bumped by one conditional UPDATE, so sequences are gapless and in commit order
without a global lock, and a rolled-back append leaves no hole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from orchestrator.events.models import Event, Stream
from orchestrator.events.types import NewEvent
from orchestrator.jobs.errors import LeaseLost
from orchestrator.jobs.fencing import Fence, hold_fence
from orchestrator.projects.models import Project

__all__ = [
    "NOTIFY_CHANNEL",
    "Fence",
    "LeaseLost",
    "NewEvent",
    "append",
    "append_many",
    "create_stream",
    "hold_fence",
]

NOTIFY_CHANNEL = "switchback_streams"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def create_stream(*, project: Project | int, kind: str) -> Stream:
    """An empty log that the members of the project may read."""
    project_id = project if isinstance(project, int) else project.pk
    return Stream.objects.create(project_id=project_id, kind=kind)


def append(*, stream_id: int, items: Sequence[NewEvent], fence: Fence | None = None) -> int:
    """Appends the items in order and returns the last sequence.

    With a fence, LeaseLost if that attempt no longer owns its job: nothing is written.
    Inside a transaction the items become visible with it. Raises ValueError for a payload that is
    not plain JSON, Stream.DoesNotExist for an unknown stream.
    """
    return _append({stream_id: items}, fence)[stream_id]


def append_many(*, batches: Mapping[int, Sequence[NewEvent]], fence: Fence | None = None) -> None:
    """Appends to several streams in one transaction: all or nothing."""
    _append(batches, fence)


def _append(batches: Mapping[int, Sequence[NewEvent]], fence: Fence | None) -> dict[int, int]:
    now = timezone.now()
    prepared = {
        stream_id: [(item.kind, storable(item)) for item in items]
        for stream_id, items in batches.items()
    }
    last_seqs: dict[int, int] = {}
    with transaction.atomic(savepoint=False):
        if fence is not None:
            hold_fence(fence)
        # In order of id: two writers of the same streams cannot wait for each other.
        for stream_id, items in sorted(prepared.items()):
            stream = Stream.objects.filter(pk=stream_id)
            if not stream.update(last_seq=F("last_seq") + len(items)):
                raise Stream.DoesNotExist(f"no stream {stream_id}")
            last_seq = stream.values_list("last_seq", flat=True).get()
            first_seq = last_seq - len(items) + 1
            Event.objects.bulk_create(
                Event(
                    stream_id=stream_id, seq=first_seq + index, kind=kind, payload=payload, at=now
                )
                for index, (kind, payload) in enumerate(items)
            )
            last_seqs[stream_id] = last_seq
        _notify(last_seqs)
    return last_seqs


def _notify(stream_ids: Mapping[int, int]) -> None:
    """PostgreSQL delivers it on commit. SQLite needs none: its waker sees the file change."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for stream_id in stream_ids:
                cursor.execute("SELECT pg_notify(%s, %s)", [NOTIFY_CHANNEL, str(stream_id)])


def storable(item: NewEvent) -> dict[str, Any]:
    """The payload as both databases accept it.

    PostgreSQL refuses NUL and lone surrogates in JSON; a model may well produce them, so they
    become U+FFFD. NaN and infinities are a defect of the writer: ValueError.
    """
    try:
        text = json.dumps(item.payload, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"payload of event {item.kind!r} is not plain JSON: {error}") from error
    if "\\u0000" in text or "\\ud" in text:
        cleaned: dict[str, Any] = _clean(item.payload)
        return cleaned
    return dict(item.payload)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(part) for part in value]
    return value
