"""Reads of one rollout's log for its page: the skeleton, some events, and where a text stands."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from django.db.models import Q, TextField
from django.db.models.functions import Cast, Length

from orchestrator.events.models import Event
from orchestrator.web.terminal import without_sequences
from orchestrator.web.trace_index import IndexRow, TraceIndex

MOST_HITS = 5_000
_CHUNK = 500


def index_of(stream_id: int) -> TraceIndex:
    """One query, and no payload leaves the database."""
    rows = (
        Event.objects.filter(stream_id=stream_id)
        .annotate(size=Length(Cast("payload", TextField())))
        .order_by("seq")
        .values_list("seq", "kind", "size")
    )
    return TraceIndex([IndexRow(seq, kind, size or 0) for seq, kind, size in rows.iterator()])


def events_at(stream_id: int, seqs: Sequence[int]) -> list[Event]:
    """The events with these numbers that exist, in the order asked for. One query."""
    if not seqs:
        return []
    found = {e.seq: e for e in Event.objects.filter(stream_id=stream_id, seq__in=seqs)}
    return [found[seq] for seq in seqs if seq in found]


def event_at(stream_id: int, seq: int) -> Event | None:
    return Event.objects.filter(stream_id=stream_id, seq=seq).first()


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
    for seq, payload in events.values_list("seq", "payload").iterator(chunk_size=_CHUNK):
        if wanted in readable(payload):
            hits.append(seq)
            if len(hits) == MOST_HITS:
                break
    return hits


def _may_hold(wanted: str) -> Q:
    """Every word as it is stored. A text with terminal escapes may be broken anywhere."""
    words = Q()
    for word in wanted.split(" "):
        if not word.isascii():
            continue  # Upper and lower case of other scripts are not known to every database.
        words &= Q(stored__icontains=json.dumps(word)[1:-1])
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
        elif item is not None and not isinstance(item, bool):
            yield json.dumps(item)
