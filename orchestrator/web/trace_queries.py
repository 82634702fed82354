"""Reads of one rollout's log for its page: the skeleton, some events, and where a text stands."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Q, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from orchestrator.events.models import Event
from orchestrator.jobs.models import Job, JobState
from orchestrator.runs.models import OPEN_ROLLOUT_STATES, Rollout
from orchestrator.traces.exact import Number
from orchestrator.traces.models import OutsideEvent
from orchestrator.web.terminal import without_sequences
from orchestrator.web.trace_index import IndexRow, TraceIndex, depths_of
from orchestrator.web.trace_opened import KIND as OUTSIDE
from orchestrator.web.trace_opened import opened

MOST_HITS = 5_000
_CHUNK = 500
_SIZE = {
    # Stored in ASCII: bytes, which need no counting, are characters.
    "sqlite": "LENGTH(CAST(payload AS BLOB))",
    # Printing 32,843 payloads as text takes PostgreSQL longer than all the rest of the page. This
    # unpacks them alone; 32 bytes are what the stored form mostly takes more than the text.
    "postgresql": "GREATEST(pg_column_size(payload || '{}'::jsonb) - 32, 0)",
}
"""About the characters of a payload as text: the page estimates the height of a card by it."""


def index_of(stream_id: int) -> TraceIndex:
    """One query, two more for a trace from outside; no payload leaves the database."""
    # By hand: converting each of 32,843 rows takes Django as long as all the rest.
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT seq, kind, {_SIZE[connection.vendor]} FROM events_event "
            "WHERE stream_id = %s ORDER BY seq",
            [stream_id],
        )
        rows = cursor.fetchall()
    seqs, kinds, sizes = tuple(zip(*rows, strict=True)) or ((), (), ())
    if OUTSIDE not in set(kinds):
        return TraceIndex(seqs, kinds, sizes)
    return TraceIndex.of(_in_their_order(stream_id, [IndexRow(*row) for row in rows]))


def _in_their_order(stream_id: int, rows: Sequence[IndexRow]) -> list[IndexRow]:
    """By the producer's numbers, with the producer's kinds, and how deep below its parents."""
    events = Event.objects.filter(stream_id=stream_id, kind=OUTSIDE)
    kinds = dict(events.values_list("seq", "payload__name"))
    outside = list(
        OutsideEvent.objects.filter(owner__rollout__stream_id=stream_id)
        .order_by("position", "seq")
        .values_list("seq", "key", "parent_key")
    )
    depths = depths_of({key: parent for _, key, parent in outside})
    places = {seq: (place, depths[key]) for place, (seq, key, _) in enumerate(outside)}
    behind = (len(places), 0)

    def drawn(row: IndexRow) -> tuple[int, IndexRow]:
        place, depth = places.get(row.seq, behind)
        return place, IndexRow(row.seq, str(kinds.get(row.seq) or row.kind), row.size, depth)

    return [row for _, row in sorted(map(drawn, rows), key=lambda one: (one[0], one[1].seq))]


def lost_since(rollout: Rollout) -> datetime | None:
    """When the last event came, if nobody writes this open rollout any more; else None.

    Its run has ended, or the worker that held it let its lease run out. One query, or three.
    """
    run = rollout.run
    if rollout.state not in OPEN_ROLLOUT_STATES:
        return None
    job = Job.objects.filter(pk=run.job_id).first() if run.job_id else None
    is_held = job is None or (
        not job.is_ended
        and not (job.state == JobState.RUNNING and job.lease_until < timezone.now())
    )
    if is_held and not run.has_ended:
        return None
    last = Event.objects.filter(stream_id=rollout.stream_id).order_by("-seq").first()
    return last.at if last is not None else run.created_at


def stored_outside(stream_id: int, seq: int) -> str | None:
    """An event from outside as it was sent, all of it."""
    found = OutsideEvent.objects.filter(owner__rollout__stream_id=stream_id, seq=seq)
    return found.values_list("body", flat=True).first()


def events_at(stream_id: int, seqs: Sequence[int]) -> list[Event]:
    """The events with these numbers that exist, in the order asked for. One query."""
    if not seqs:
        return []
    found = {e.seq: e for e in Event.objects.filter(stream_id=stream_id, seq__in=seqs)}
    return [found[seq] for seq in seqs if seq in found]


def event_at(stream_id: int, seq: int) -> Event | None:
    return Event.objects.filter(stream_id=stream_id, seq=seq).first()


def first_events(stream_id: int, limit: int) -> list[Event]:
    return list(Event.objects.filter(stream_id=stream_id).order_by("seq")[:limit])


def find_in_trace(stream_id: int, wanted: str, kinds: Collection[str] = ()) -> list[int]:
    """Numbers of the events in whose words `wanted` stands, letter case ignored; at most MOST_HITS.

    What counts is what a reader sees: texts and numbers of the payload without terminal escapes.
    The database only leaves out what cannot match.
    """
    wanted = " ".join(wanted.split()).casefold()
    if not wanted:
        return []
    events = Event.objects.filter(stream_id=stream_id).order_by("seq")
    if kinds:
        events = events.filter(kind__in=kinds)
    events = events.annotate(stored=Cast("payload", TextField())).filter(_may_hold(wanted))
    hits = []
    rows = events.values_list("seq", "kind", "payload")
    for seq, kind, payload in rows.iterator(chunk_size=_CHUNK):
        if wanted in readable(opened(kind, payload)):
            hits.append(seq)
            if len(hits) == MOST_HITS:
                break
    return hits


def _may_hold(wanted: str) -> Q:
    """Every word as it is stored. A text with terminal escapes may be broken anywhere."""
    words = Q()
    for word in wanted.split(" "):
        # Upper and lower case of other scripts are not known to every database, and an event from
        # outside is stored as a text of JSON, with what is escaped in it escaped twice.
        if word.isascii() and json.dumps(word) == f'"{word}"':
            words &= Q(stored__icontains=word)
    return words | Q(stored__contains="\\u001b")


def readable(payload: Any) -> str:
    """All texts and numbers of a payload in one line, case folded."""
    joined = " ".join(without_sequences(text) for text in _leaves(payload))
    return " ".join(joined.split()).casefold()


def _leaves(value: Any) -> Iterator[str]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, dict):
            stack.extend(reversed(item.values()))
        elif isinstance(item, list):
            stack.extend(reversed(item))
        elif isinstance(item, Number):
            yield item.token
        elif item is not None and not isinstance(item, bool):
            yield json.dumps(item)
