"""The full-text index of the log: written with the events, in the same transaction.

SQLite: an FTS5 table without the text, which the events have already (`events_text`, rowid = event
id). PostgreSQL: a table with a tsvector and a GIN index. Both also hold whose an event is, `p12`
and `s34` for project and stream, so that a search inside one project or rollout reads no others.
Events that were written past `append` are indexed by `manage.py index_events`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.events.search_text import INDEXED_KINDS, event_words, tsvector

Execute = Callable[[str, Sequence[Any]], Sequence[Any]]
_AT_ONCE = 200


def write_words(
    execute: Execute, vendor: str, rows: Sequence[tuple[int, int, int, list[str]]]
) -> None:
    """Indexes events: (event id, project id, stream id, words)."""
    shown = [row for row in rows if row[3]]
    for start in range(0, len(shown), _AT_ONCE):
        values: list[Any] = []
        chunk = shown[start : start + _AT_ONCE]
        for event_id, project_id, stream_id, words in chunk:
            scopes = [f"p{project_id}", f"s{stream_id}"]
            if vendor == "postgresql":
                values += [event_id, tsvector(words, scopes)]
            else:
                values += [event_id, " ".join(scopes), " ".join(words)]
        if vendor == "postgresql":
            marks = ", ".join(["(%s, %s::tsvector)"] * len(chunk))
            execute(
                f"INSERT INTO events_text (event_id, words) VALUES {marks}"
                " ON CONFLICT (event_id) DO NOTHING",
                values,
            )
        else:
            marks = ", ".join(["(%s, %s, %s)"] * len(chunk))
            execute(f"INSERT INTO events_text (rowid, scope, words) VALUES {marks}", values)


def index_missing(execute: Execute, vendor: str, *, at_most: int = 2_000, after: int = 0) -> int:
    """Indexes events above the id `after` that are not yet, oldest first.

    Returns the id of the last one that was looked at, 0 when there was none left.
    """
    kinds = sorted(INDEXED_KINDS)
    known = (
        "SELECT 1 FROM events_text t WHERE t.event_id = e.id"
        if vendor == "postgresql"
        else "SELECT 1 FROM events_text_docsize t WHERE t.id = e.id"
    )
    rows = execute(
        "SELECT e.id, s.project_id, e.stream_id, e.kind, e.payload FROM events_event e"
        f" JOIN events_stream s ON s.id = e.stream_id WHERE e.id > %s"
        f" AND e.kind IN ({', '.join(['%s'] * len(kinds))}) AND NOT EXISTS ({known})"
        " ORDER BY e.id LIMIT %s",
        [after, *kinds, at_most],
    )
    write_words(
        execute,
        vendor,
        [
            (event_id, project_id, stream_id, event_words(kind, _loaded(payload)))
            for event_id, project_id, stream_id, kind, payload in rows
        ],
    )
    return int(rows[-1][0]) if rows else 0


def _loaded(payload: Any) -> Any:
    return json.loads(payload) if isinstance(payload, str) else payload
