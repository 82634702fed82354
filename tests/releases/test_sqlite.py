"""A database of each release becomes one of today, with nothing lost, on SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.apps import apps
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor

from orchestrator.moving import copying, schema
from tests.moving.installations import Installation, sqlite_installation
from tests.releases.releases import NAMES, unpack

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "sqlite", reason="of SQLite"),
]


@pytest.fixture(params=NAMES)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Installation]:
    with sqlite_installation(tmp_path) as installation:
        unpack(request.param, installation.database)
        yield installation


def test_nothing_is_lost_and_the_schema_is_todays(release: Installation) -> None:
    before = schema.row_counts(release.alias)
    executor = MigrationExecutor(connections[release.alias])
    executor.migrate(executor.loader.graph.leaf_nodes())
    after = schema.row_counts(release.alias)
    kept = {
        table: rows
        for table, rows in before.items()
        if table != "django_migrations" and not table.startswith("events_text")
    }
    assert {table: after.get(table) for table in kept} == kept
    assert kept["runs_rollout"] > 500
    with closing(sqlite3.connect(release.database)) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with closing(sqlite3.connect(str(connection.settings_dict["NAME"]))) as fresh:
            assert shape(database) == shape(fresh)
    # Every row of every model can be read, and would fit into PostgreSQL.
    found = copying.survey(release.alias, apps)
    assert found.rows > sum(kept.values()) * 0.9
    assert not found.misfits


def shape(database: sqlite3.Connection) -> dict[str, object]:
    """Columns and indexes of each table, whatever the order they came in."""
    found: dict[str, object] = {}
    for name, table in database.execute(
        "SELECT name, tbl_name FROM sqlite_master WHERE type = 'table'"
    ).fetchall():
        if name.startswith(("sqlite_", "faults_", "events_text_")):
            continue
        columns = database.execute(f'PRAGMA table_info("{table}")').fetchall()
        indexes = [
            (
                is_unique,
                is_partial,
                tuple(row[2] for row in database.execute(f'PRAGMA index_info("{index}")')),
            )
            for _, index, is_unique, _, is_partial in database.execute(
                f'PRAGMA index_list("{table}")'
            ).fetchall()
        ]
        keys = [row[2:7] for row in database.execute(f'PRAGMA foreign_key_list("{table}")')]
        found[name] = (
            sorted((column[1], *column[2:4], column[5]) for column in columns),
            sorted(indexes, key=repr),
            sorted(keys, key=repr),
        )
    return found
