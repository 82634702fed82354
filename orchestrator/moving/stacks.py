"""From the embedded stack into PostgreSQL, with everything stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.db import connections, transaction

from orchestrator.envvars import postgres_options
from orchestrator.events.search_index import index_missing
from orchestrator.moving import copying, schema
from orchestrator.moving.copying import Survey
from orchestrator.moving.errors import MovingError

TARGET = "target"


@contextmanager
def target_database(url: str) -> Iterator[str]:
    """A connection to the database at `url`, under the alias that is given back."""
    options = postgres_options(url, pool_size=1)
    options["OPTIONS"].pop("pool")
    # Not entered among the databases for longer than it takes: nothing else is to find it.
    connections.databases[TARGET] = {**connections.databases["default"], **options}
    try:
        connections[TARGET] = connections.create_connection(TARGET)
    finally:
        del connections.databases[TARGET]
    try:
        yield TARGET
    finally:
        connections[TARGET].close()
        del connections[TARGET]


def plan(target: str, say: Callable[[str], None]) -> Survey:
    """Changes nothing. Raises MovingError if the target or the source is not as it must be."""
    _require_source()
    schema.require_empty(target)
    return copying.survey("default", apps, say)


def move(target: str, say: Callable[[str], None]) -> Survey:
    """Raises MovingError; the target then holds no rows."""
    _require_source()
    schema.require_empty(target)
    say("making the tables")
    schema.bring_up_to_date(target)
    done = copying.copy("default", target, apps, say)
    say("indexing words of events")
    _index(target)
    return done


def _require_source() -> None:
    if connections["default"].vendor != "sqlite":
        raise MovingError(
            "This installation uses PostgreSQL already; between two servers, `backup` and "
            "`restore` lead."
        )
    if not schema.is_up_to_date("default"):
        raise MovingError("The database has an older schema: run `manage.py migrate` first.")


def _index(alias: str) -> None:
    """In batches of their own: what is missing can be added later by `manage.py index_events`."""
    after = 0
    while True:
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:

            def execute(sql: str, params: Any, cursor: Any = cursor) -> Any:
                cursor.execute(sql, params)
                return cursor.fetchall() if cursor.description else ()

            after = index_missing(execute, "postgresql", after=after)
        if not after:
            return
