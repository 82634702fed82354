"""Full-text search over the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.db.models import BooleanField, Func
from django.db.models.expressions import RawSQL

from orchestrator.events.search_index import index_missing
from orchestrator.events.search_text import fts5_query, phrases_of, tsquery

MOST_HITS = 5_000


@dataclass(frozen=True)
class Hit:
    stream_id: int
    seq: int
    event_id: int = field(default=0, compare=False)
    """Keyset of the next page."""


def search_events(
    project_id: int,
    query: str,
    *,
    stream_id: int | None = None,
    limit: int = MOST_HITS,
    before_id: int | None = None,
) -> list[Hit]:
    """Events of the project, or of one of its streams, that hold all words of the query.

    In the order of the log inside one stream, else the newest first; at most `limit`, older than
    the event `before_id` if given. A query without a word finds nothing. `"two words"` is a phrase,
    `be*` a beginning.
    """
    sql, params = _ids(project_id, query, stream_id)
    if not sql:
        return []
    order = "ASC" if stream_id is not None else "DESC"
    key = "rowid" if connection.vendor == "sqlite" else "event_id"
    if before_id is not None:
        sql, params = f"{sql} AND {key} < %s", [*params, before_id]
    where, extra = "s.project_id = %s", [project_id]
    if stream_id is not None:
        where, extra = f"{where} AND e.stream_id = %s", [project_id, stream_id]
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT e.stream_id, e.seq, e.id FROM ({sql} ORDER BY {key} {order} LIMIT %s) t"
            f" JOIN events_event e ON e.id = t.{key} JOIN events_stream s ON s.id = e.stream_id"
            f" WHERE {where} ORDER BY e.id {order}",
            [*params, limit, *extra],
        )
        return [Hit(*row) for row in cursor.fetchall()]


def streams_with(project_id: int, query: str) -> RawSQL | None:
    """The streams of the project in which one event holds all words of the query, as a subquery.

    None for a query without a word.
    """
    sql, params = _ids(project_id, query, None)
    if not sql:
        return None
    # Built here; what was asked for is among the parameters.
    return RawSQL(f"SELECT stream_id FROM events_event WHERE id IN ({sql})", params)


class HoldsWords(Func):
    """Whether one event of the stream that an expression names holds all words of a query.

    For SQLite, where asking stream by stream is fast when most of them answer yes; `streams_with`
    is fast when few do.
    """

    output_field = BooleanField()
    conditional = True

    def __init__(self, stream: str, query: str) -> None:
        super().__init__(stream)
        self.query = query

    def as_sql(
        self,
        compiler: Any,
        connection: Any,
        function: str | None = None,
        template: str | None = None,
        arg_joiner: str | None = None,
        **extra_context: Any,
    ) -> tuple[str, tuple[str | int, ...]]:
        stream, params = compiler.compile(self.source_expressions[0])
        head, _scope, tail = fts5_query(phrases_of(self.query), "s|").partition("|")
        return (
            "EXISTS(SELECT 1 FROM events_text"
            f" WHERE events_text MATCH (%s || CAST({stream} AS TEXT) || %s))",
            (head, *params, tail),
        )


def _ids(project_id: int, query: str, stream_id: int | None) -> tuple[str, list[Any]]:
    """SELECT of the ids of events that match, without an order; empty if there is no word."""
    phrases = phrases_of(query)
    if not phrases:
        return "", []
    scope = f"p{project_id}" if stream_id is None else f"s{stream_id}"
    if connection.vendor == "sqlite":
        text = fts5_query(phrases, scope)
        return "SELECT rowid FROM events_text WHERE events_text MATCH %s", [text]
    return (
        "SELECT event_id FROM events_text WHERE words @@ %s::tsquery",
        [tsquery(phrases, scope)],
    )


def index_all() -> int:
    """Indexes what was written past `append`; the number of batches that it took."""
    batches, after = 0, 0
    while True:
        with transaction.atomic(), connection.cursor() as cursor:

            def execute(sql: str, params: Sequence[Any], cursor: Any = cursor) -> Sequence[Any]:
                cursor.execute(sql, params)
                return cursor.fetchall() if cursor.description else ()

            after = index_missing(execute, connection.vendor, after=after)
        if not after:
            return batches
        batches += 1
