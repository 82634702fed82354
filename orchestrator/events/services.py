"""Writing the log. An append is one transaction: fence, counter, rows, wake-up.

The counter is bumped by one conditional UPDATE, so sequences are gapless and in commit order
without a global lock, and a rolled-back append leaves no hole.

Every step of every rollout comes through here, so the statements are plain SQL that both databases
take: building them from the models costs four times as much as running them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from orchestrator.events.models import Stream
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


def append_many(
    *, batches: Mapping[int, Sequence[NewEvent]], fence: Fence | None = None
) -> dict[int, int]:
    """Appends to several streams in one transaction, all or nothing; the last sequence of each."""
    return _append(batches, fence)


def _append(batches: Mapping[int, Sequence[NewEvent]], fence: Fence | None) -> dict[int, int]:
    prepared = {
        stream_id: [(item.kind, storable(item)) for item in items]
        for stream_id, items in batches.items()
    }
    last_seqs: dict[int, int] = {}
    is_postgresql = connection.vendor == "postgresql"
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        if fence is not None:
            hold_fence(fence)
        now = connection.ops.adapt_datetimefield_value(timezone.now())
        rows: list[tuple[Any, ...]] = []
        # In order of id: two writers of the same streams cannot wait for each other.
        for stream_id, items in sorted(prepared.items()):
            cursor.execute(_BUMP, [len(items), stream_id])
            bumped = cursor.fetchone()
            if bumped is None:
                raise Stream.DoesNotExist(f"no stream {stream_id}")
            last_seqs[stream_id] = bumped[0]
            first_seq = bumped[0] - len(items) + 1
            rows.extend(
                (stream_id, first_seq + index, kind, payload, now)
                for index, (kind, payload) in enumerate(items)
            )
        if rows:
            cursor.executemany(_INSERT_POSTGRESQL if is_postgresql else _INSERT, rows)
        _notify(last_seqs)
    return last_seqs


_BUMP = "UPDATE events_stream SET last_seq = last_seq + %s WHERE id = %s RETURNING last_seq"
_INSERT = "INSERT INTO events_event (stream_id, seq, kind, payload, at) VALUES (%s, %s, %s, %s, %s)"
_INSERT_POSTGRESQL = (
    "INSERT INTO events_event (stream_id, seq, kind, payload, at)"
    " VALUES (%s, %s, %s, %s::jsonb, %s)"
)


def _notify(stream_ids: Mapping[int, int]) -> None:
    """PostgreSQL delivers it on commit. SQLite needs none: its waker sees the file change."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            for stream_id in stream_ids:
                cursor.execute("SELECT pg_notify(%s, %s)", [NOTIFY_CHANNEL, str(stream_id)])


def storable(item: NewEvent) -> str:
    """The payload as JSON that both databases accept.

    PostgreSQL refuses NUL and lone surrogates in JSON; a model may well produce them, so they
    become U+FFFD. NaN and infinities are a defect of the writer: ValueError.
    """
    try:
        text = json.dumps(item.payload, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"payload of event {item.kind!r} is not plain JSON: {error}") from error
    if "\\u0000" in text or "\\ud" in text:
        return json.dumps(_clean(item.payload))
    return text


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {_clean(key): _clean(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(part) for part in value]
    return value
