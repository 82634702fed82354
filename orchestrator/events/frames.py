"""Reading a stream into frames: what is encoded once and sent to many sockets."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

from django.db import Error, connection

from orchestrator.events.models import Event, Stream
from orchestrator.events.queries import READ_LIMIT

# Threads of our own keep their database connections open between reads. Channels would run the
# reads of all sockets of a process on one thread and open a connection for each.
_readers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="feed-reader")


@dataclass(frozen=True)
class Frame:
    first_seq: int
    """Sequence of the first event in it; `last_seq + 1` for an empty frame."""
    last_seq: int
    is_full: bool
    """There may be more to read after it."""
    text: str
    """JSON as it goes over the wire."""
    written_at: datetime | None = None
    """Of its last event."""


async def read_frame(stream_id: int, after: int) -> Frame:
    """The events after `after`, at most READ_LIMIT. Raises django.db.Error."""
    return await asyncio.get_running_loop().run_in_executor(_readers, _read, stream_id, after)


async def read_head(stream_id: int) -> int:
    """The last sequence of the stream, 0 if it is gone. Raises django.db.Error."""
    return await asyncio.get_running_loop().run_in_executor(_readers, _head, stream_id)


def _read(stream_id: int, after: int) -> Frame:
    try:
        rows = list(
            Event.objects.filter(stream_id=stream_id, seq__gt=after)
            .order_by("seq")
            .values_list("seq", "kind", "payload", "at")[:READ_LIMIT]
        )
    except Error:
        connection.close()
        raise
    last_seq = rows[-1][0] if rows else after
    events = [
        {"seq": seq, "kind": kind, "payload": payload, "at": at.isoformat()}
        for seq, kind, payload, at in rows
    ]
    return Frame(
        first_seq=rows[0][0] if rows else after + 1,
        last_seq=last_seq,
        is_full=len(rows) == READ_LIMIT,
        text=json.dumps({"events": events, "head": last_seq}, separators=(",", ":")),
        written_at=rows[-1][3] if rows else None,
    )


def _head(stream_id: int) -> int:
    try:
        seq = Stream.objects.filter(pk=stream_id).values_list("last_seq", flat=True).first()
    except Error:
        connection.close()
        raise
    return seq or 0
