"""Writing the log. An append is one transaction: fence, counter, rows, wake-up.

The counter is bumped by one conditional UPDATE, so sequences are gapless and in commit order
without a global lock, and a rolled-back append leaves no hole.

Every step of every rollout comes through here, so the statements are plain SQL that both databases
take: building them from the models costs four times as much as running them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from orchestrator.events.models import Stream
from orchestrator.events.rows import insert_rows
from orchestrator.events.search_index import write_words
from orchestrator.events.search_text import event_words
from orchestrator.events.types import NewEvent
from orchestrator.events.watching import watcher_of
from orchestrator.inserting import insert_alike
from orchestrator.jobs.errors import LeaseLost
from orchestrator.jobs.fencing import Fence, check_fence, hold_fence
from orchestrator.projects.models import Project

__all__ = [
    "NOTIFY_CHANNEL",
    "Fence",
    "LeaseLost",
    "NewEvent",
    "append",
    "append_at_once",
    "append_many",
    "create_stream",
    "create_streams",
    "hold_fence",
]

NOTIFY_CHANNEL = "switchback_streams"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def create_stream(*, project: Project | int, kind: str) -> Stream:
    """An empty log that the members of the project may read."""
    project_id = project if isinstance(project, int) else project.pk
    return Stream.objects.create(project_id=project_id, kind=kind)


def create_streams(*, project: Project | int, kinds: Sequence[str]) -> list[int]:
    """An empty log of each kind, by one statement: their ids. Needs a transaction."""
    project_id = project if isinstance(project, int) else project.pk
    return insert_alike(Stream(project_id=project_id), [{"kind": kind} for kind in kinds])


def append(*, stream_id: int, items: Sequence[NewEvent], fence: Fence | None = None) -> int:
    """Appends the items in order and returns the last sequence.

    With a fence, LeaseLost if that attempt no longer owns its job: nothing is written.
    Inside a transaction the items become visible with it. Raises ValueError for a payload that is
    not plain JSON, Stream.DoesNotExist for an unknown stream.
    """
    return _append({stream_id: items}, fence)[stream_id]


def append_many(
    *,
    batches: Mapping[int, Sequence[NewEvent]],
    fence: Fence | None = None,
    words_later: bool = False,
) -> dict[int, int]:
    """Appends to several streams in one transaction, all or nothing; the last sequence of each.

    `words_later`: search finds them once `orchestrator.events.indexing` has come by; `search` of
    the events is not read then, but what their kind's source tells.
    """
    return _append(batches, fence, words_later=words_later)


def append_at_once(*, batches: Mapping[int, Sequence[NewEvent]], fence: Fence) -> dict[int, int]:
    """`append_many` as a transaction of its own, with the fence.

    On SQLite without what Django does around every statement, which costs twice what the statements
    do; a run pays it for every step.
    """
    if connection.vendor != "sqlite" or connection.in_atomic_block:
        return _append(batches, fence)
    prepared = _prepared(batches)
    connection.ensure_connection()
    raw = connection.connection

    def execute(sql: str, params: Sequence[Any]) -> Sequence[Any]:
        rows: list[Any] = raw.execute(sql.replace("%s", "?"), params).fetchall()
        return rows

    with connection.wrap_database_errors:
        raw.execute("BEGIN IMMEDIATE")
        try:
            check_fence(fence, execute, locks_rows=False)
            last_seqs = _written(prepared, execute)
            raw.execute("COMMIT")
        except BaseException:
            if raw.in_transaction:
                raw.execute("ROLLBACK")
            raise
    return last_seqs


def _append(
    batches: Mapping[int, Sequence[NewEvent]], fence: Fence | None, *, words_later: bool = False
) -> dict[int, int]:
    prepared = _prepared(batches, words_later=words_later)
    with transaction.atomic(savepoint=False), connection.cursor() as cursor:
        if fence is not None:
            hold_fence(fence)

        def execute(sql: str, params: Sequence[Any]) -> Sequence[Any]:
            cursor.execute(sql, params)
            return cursor.fetchall() if cursor.description else ()

        last_seqs = _written(prepared, execute)
        if words_later:
            _put_off(batches, last_seqs)
        _notify(last_seqs)
        for stream_id, items in batches.items():
            for seq, item in enumerate(items, start=last_seqs[stream_id] - len(items) + 1):
                if (watcher := watcher_of(item.kind)) is not None:
                    watcher(stream_id, seq, item.kind, item.payload)
    return last_seqs


Prepared = Mapping[int, Sequence[tuple[str, str, list[str]]]]
"""Kind, payload and words of the events by stream."""
Execute = Callable[[str, Sequence[Any]], Sequence[Any]]
"""Runs a statement and gives its rows."""


def _prepared(batches: Mapping[int, Sequence[NewEvent]], *, words_later: bool = False) -> Prepared:
    return {
        stream_id: [
            (
                item.kind,
                storable(item),
                [] if words_later else event_words(item.kind, item.search or item.payload),
            )
            for item in items
        ]
        for stream_id, items in batches.items()
    }


def _put_off(batches: Mapping[int, Sequence[NewEvent]], last_seqs: Mapping[int, int]) -> None:
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    ranges = [
        (stream_id, first, min(first + _WAITING_AT_ONCE - 1, last_seqs[stream_id]), now)
        for stream_id, items in batches.items()
        for first in range(
            last_seqs[stream_id] - len(items) + 1, last_seqs[stream_id] + 1, _WAITING_AT_ONCE
        )
    ]
    insert_rows("events_waitingwords", ("stream_id", "first_seq", "last_seq", "at"), ranges)


def _written(prepared: Prepared, execute: Execute) -> dict[int, int]:
    now = connection.ops.adapt_datetimefield_value(timezone.now())
    last_seqs: dict[int, int] = {}
    projects: dict[int, int] = {}
    # In order of id: two writers of the same streams cannot wait for each other.
    counts = [(stream_id, len(prepared[stream_id])) for stream_id in sorted(prepared)]
    for start in range(0, len(counts), _STREAMS_AT_ONCE):
        bumped = _bumped(execute, dict(counts[start : start + _STREAMS_AT_ONCE]))
        last_seqs |= {stream_id: seq for stream_id, (seq, _) in bumped.items()}
        projects |= {stream_id: project for stream_id, (_, project) in bumped.items()}
    rows = [
        (stream_id, last_seqs[stream_id] - len(items) + index, kind, payload, now)
        for stream_id, items in prepared.items()
        for index, (kind, payload, _) in enumerate(items, start=1)
    ]
    words = {
        (stream_id, last_seqs[stream_id] - len(items) + index): found
        for stream_id, items in prepared.items()
        for index, (_, _, found) in enumerate(items, start=1)
        if found
    }
    if not words and connection.vendor == "postgresql":
        # Nobody asks for the ids.
        insert_rows("events_event", _COLUMNS, rows)
        return last_seqs
    row = _ROW_POSTGRESQL if connection.vendor == "postgresql" else _ROW
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        chunk = rows[start : start + _ROWS_AT_ONCE]
        ids = execute(
            f"{_INSERT} {', '.join([row] * len(chunk))} RETURNING id, stream_id, seq",
            [value for values in chunk for value in values],
        )
        indexed = [
            (event_id, projects[stream_id], stream_id, found)
            for event_id, stream_id, seq in ids
            if (found := words.get((stream_id, seq)))
        ]
        write_words(execute, connection.vendor, indexed)
    return last_seqs


_COLUMNS = ("stream_id", "seq", "kind", "payload", "at")
_INSERT = f"INSERT INTO events_event ({', '.join(_COLUMNS)}) VALUES"
_ROW, _ROW_POSTGRESQL = "(%s, %s, %s, %s, %s)", "(%s, %s, %s, %s::jsonb, %s)"
_ROWS_AT_ONCE = 200
_WAITING_AT_ONCE = 100
"""Events of one row of what waits for the index."""
_STREAMS_AT_ONCE = 500
"""Of one statement; SQLite takes 32,766 parameters."""


def _bumped(execute: Execute, counts: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Adds to the counters, which locks them, and gives what they are, with the project.

    One statement on SQLite.
    """
    ids = list(counts)
    marks = ", ".join(["%s"] * len(ids))
    if connection.vendor == "postgresql" and len(ids) > 1:
        execute(f"SELECT id FROM events_stream WHERE id IN ({marks}) ORDER BY id FOR UPDATE", ids)
    if len(ids) == 1:
        rows = execute(
            "UPDATE events_stream SET last_seq = last_seq + %s WHERE id = %s"
            " RETURNING id, last_seq, project_id",
            [counts[ids[0]], ids[0]],
        )
    else:
        cases = " ".join(["WHEN %s THEN %s"] * len(ids))
        rows = execute(
            f"UPDATE events_stream SET last_seq = last_seq + CASE id {cases} END"
            f" WHERE id IN ({marks}) RETURNING id, last_seq, project_id",
            [*(number for pair in counts.items() for number in pair), *ids],
        )
    bumped = {stream_id: (seq, project_id) for stream_id, seq, project_id in rows}
    if missing := [stream_id for stream_id in ids if stream_id not in bumped]:
        raise Stream.DoesNotExist(f"no stream {missing[0]}")
    return bumped


def _notify(stream_ids: Mapping[int, int]) -> None:
    """PostgreSQL delivers it on commit. SQLite needs none: its waker sees the file change."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_notify(%s, stream_id::text) FROM unnest(%s::bigint[]) AS stream_id",
                [NOTIFY_CHANNEL, list(stream_ids)],
            )


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
