"""Words that follow their events: the full-text index of what came in by the thousand.

The index is four fifths of what an append costs. Whoever takes in many events writes with them, in
the same transaction, which sequences wait (`WaitingWords`), and asks for the job that indexes them:
the events are answered for at once and their words are found within seconds. A row is taken away in
the transaction that writes its words, so that none is lost or written twice, whoever dies. Texts
are cut into words before that transaction: on SQLite it holds the lock of all writers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.db import connection, transaction
from django.db.models import F, Min, Sum
from django.utils import timezone

from orchestrator.events.models import WaitingWords
from orchestrator.events.search_index import write_words
from orchestrator.events.search_sources import words_of_events
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.services import enqueue

JOB_KIND = "events.index"
_MOMENT = timedelta(seconds=1)
_RANGES_AT_ONCE, _EVENTS_AT_ONCE = 200, 400
"""Of one transaction: some 50 ms of SQLite's lock."""
LATE = timedelta(seconds=5)
"""So long may words wait for a worker before the sweep writes them itself."""


def waiting() -> int:
    """Events whose words are not in the index yet."""
    total = WaitingWords.objects.aggregate(n=Sum(F("last_seq") - F("first_seq") + 1))["n"]
    return int(total or 0)


def is_growing() -> bool:
    """Whether events came in a moment ago."""
    newest = WaitingWords.objects.order_by("-pk").values_list("at", flat=True).first()
    return newest is not None and newest > timezone.now() - _MOMENT


def ask() -> None:
    """Has what waits indexed, unless a job for that is queued or runs."""
    newest = WaitingWords.objects.order_by("-pk").values_list("pk", flat=True).first()
    live = Job.objects.filter(kind=JOB_KIND, state__in=(JobState.QUEUED, JobState.RUNNING))
    if newest is not None and not live.exists():
        enqueue(kind=JOB_KIND, spec={}, key=f"{JOB_KIND}-{newest}")


def ask_again() -> None:
    """For the sweep: what a job left behind is asked for, what no worker came for is written."""
    oldest = WaitingWords.objects.aggregate(at=Min("at"))["at"]
    if oldest is None:
        return
    ask()
    if oldest < timezone.now() - LATE:
        index_some()


def index_waiting() -> None:
    """All that waits, at once."""
    while index_some():
        pass


def index_some() -> bool:
    """Indexes the oldest of what waits; whether there was anything. Safe beside others."""
    oldest = WaitingWords.objects.order_by("pk")[:_RANGES_AT_ONCE]
    ranges: list[tuple[int, int, int, int]] = []
    room = _EVENTS_AT_ONCE
    for range_ in oldest.values_list("pk", "stream_id", "first_seq", "last_seq"):
        ranges.append(range_)
        room -= range_[3] - range_[2] + 1
        if room <= 0:
            break
    if not ranges:
        return False
    events = _events([range_[1:] for range_ in ranges])
    words = words_of_events(events)
    with transaction.atomic(), connection.cursor() as cursor:
        marks = ", ".join(["%s"] * len(ranges))
        # Whoever deletes a row writes its words; another one that read it too finds it gone.
        cursor.execute(
            f"DELETE FROM events_waitingwords WHERE id IN ({marks})"
            " RETURNING stream_id, first_seq, last_seq",
            [range_[0] for range_ in ranges],
        )
        ours = cursor.fetchall()
        places = {(stream_id, seq) for stream_id, a, b in ours for seq in range(a, b + 1)}
        wanted = [
            (event_id, project_id, stream_id, found)
            for (event_id, project_id, stream_id, seq, _, _), found in zip(
                events, words, strict=True
            )
            if found and (stream_id, seq) in places
        ]
        _write(cursor, wanted)
    return True


def _events(
    ranges: Sequence[tuple[int, int, int]],
) -> list[tuple[int, int, int, int, str, Any]]:
    """Id, project, stream, sequence, kind and payload."""
    marks = ", ".join(["(%s, %s, %s)"] * len(ranges))
    with connection.cursor() as cursor:
        cursor.execute(
            f"WITH v (stream_id, first, last) AS (VALUES {marks})"
            " SELECT e.id, s.project_id, e.stream_id, e.seq, e.kind, e.payload FROM v"
            " JOIN events_event e ON e.stream_id = v.stream_id AND e.seq BETWEEN v.first AND v.last"
            " JOIN events_stream s ON s.id = e.stream_id ORDER BY e.id",
            [value for range_ in ranges for value in range_],
        )
        return list(cursor.fetchall())


def _write(cursor: Any, rows: Sequence[tuple[int, int, int, list[str]]]) -> None:
    """Without events that were deleted, or indexed by `index_events`, since they were read."""
    if not rows:
        return
    is_sqlite = connection.vendor == "sqlite"
    known = "events_text_docsize t WHERE t.id" if is_sqlite else "events_text t WHERE t.event_id"
    marks = ", ".join(["%s"] * len(rows))
    lock = "" if is_sqlite else " FOR KEY SHARE OF e"
    cursor.execute(
        f"SELECT e.id FROM events_event e WHERE e.id IN ({marks})"
        f" AND NOT EXISTS (SELECT 1 FROM {known} = e.id){lock}",
        [row[0] for row in rows],
    )
    open_ids = {event_id for (event_id,) in cursor.fetchall()}

    def execute(sql: str, params: Sequence[Any]) -> Sequence[Any]:
        cursor.execute(sql, params)
        return ()

    write_words(execute, connection.vendor, [row for row in rows if row[0] in open_ids])
