"""The log of SQLite is copied into the database beside those who write."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from django.db import connection

from orchestrator.sqlite.checkpoints import checkpoint, checkpoint_until
from tests.waiting import PATIENCE_S, wait_until

READ_ONLY = "?mode=ro&immutable=1"
"""Without the log: what the database file itself holds."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "a #%?.sqlite3"
    with closing(sqlite3.connect(path)) as keeps_the_log:
        keeps_the_log.execute("PRAGMA journal_mode=WAL")
        keeps_the_log.execute("PRAGMA wal_autocheckpoint=0")
        keeps_the_log.execute("CREATE TABLE t (n INTEGER)")
        yield path


def write(path: Path, n: int) -> None:
    with closing(sqlite3.connect(path, timeout=PATIENCE_S)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("INSERT INTO t VALUES (?)", [n])
        writer.commit()


def in_file(path: Path) -> list[int]:
    with closing(sqlite3.connect(f"{path.as_uri()}{READ_ONLY}", uri=True)) as reader:
        try:
            return [n for (n,) in reader.execute("SELECT n FROM t")]
        except sqlite3.DatabaseError:
            return []  # not even the table, or not all of its pages yet


def test_what_was_committed_comes_into_the_file(database: Path) -> None:
    write(database, 1)
    assert in_file(database) == []
    assert checkpoint(database) == 0
    assert in_file(database) == [1]


def test_a_reader_of_before_holds_the_rest_back_and_no_writer_waits(database: Path) -> None:
    with closing(sqlite3.connect(database)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM t").fetchall()
        write(database, 1)
        assert checkpoint(database) > 0
        write(database, 2)
    assert checkpoint(database) == 0
    assert in_file(database) == [1, 2]


def test_it_goes_on_after_a_database_that_was_away(tmp_path: Path) -> None:
    stop = threading.Event()
    away = tmp_path / "later.sqlite3"
    looking_after = threading.Thread(
        target=checkpoint_until, args=(stop, away), kwargs={"every_s": 0.005}
    )
    looking_after.start()
    try:
        with closing(sqlite3.connect(away, timeout=PATIENCE_S)) as keeps_the_log:
            keeps_the_log.execute("PRAGMA journal_mode=WAL")
            keeps_the_log.execute("CREATE TABLE t (n INTEGER)")
            write(away, 7)
            wait_until(lambda: in_file(away) == [7], limit_s=PATIENCE_S, what="the copy")
    finally:
        stop.set()
        looking_after.join(PATIENCE_S)
    assert not looking_after.is_alive()


@pytest.mark.django_db
def test_commits_of_the_product_leave_it_to_the_thread() -> None:
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_autocheckpoint")
            assert cursor.fetchone() == (16_384,)
