"""What a statement cannot do to the machine, tried on the engine itself."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.environments.sql.engine import TaskBrokenError
from orchestrator.environments.sql.sqlite import SqliteDatabase, SqliteEngine
from orchestrator.environments.sql.tasks import SqlTask

FOREVER = "WITH RECURSIVE r(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM r) "
TASK = SqlTask(
    key="t",
    prompt="?",
    schema="CREATE TABLE t (a INTEGER, b TEXT)",
    rows={"t": [[i, "x" * 100] for i in range(200)]},
    solution="DELETE FROM t WHERE a = 1",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[SqliteEngine]:
    engine = SqliteEngine(statement_s=0.5)
    yield engine
    engine.close()


@pytest.fixture
def database(engine: SqliteEngine) -> Iterator[SqliteDatabase]:
    database = engine.open(engine.prepare(TASK))
    yield database
    database.close()


def error_of(database: SqliteDatabase, statement: str) -> str:
    reply = database.run(statement)
    return reply.ended or next((r["error"] for r in reply.results if "error" in r), "")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ATTACH '/tmp/other.db' AS other", "not authorized"),
        ("ATTACH ':memory:' AS other", "not authorized"),
        ("VACUUM INTO '/tmp/copy.db'", "authoriz|attached"),
        ("PRAGMA journal_mode = WAL", "not authorized"),
        ("PRAGMA writable_schema = ON", "not authorized"),
        ("PRAGMA temp_store_directory = '/tmp'", "not authorized"),
        ("PRAGMA hard_heap_limit = 0", "not authorized"),
        ("PRAGMA max_page_count = 999999999", "not authorized"),
        ("UPDATE sqlite_master SET sql = 'x'", "may not be modified"),
        ("SELECT load_extension('/tmp/x.so')", "not authorized"),
        ("SELECT readfile('/etc/passwd')", "no such function"),
        ("SELECT writefile('/tmp/x', 'y')", "no such function"),
        ("CREATE VIRTUAL TABLE f USING fts5(x)", "not authorized"),
        (FOREVER + "SELECT count(*) FROM r", "ended after 0.5 s"),
        ("SELECT count(*) FROM t a, t b, t c, t d, t e", "ended after 0.5 s"),
        ("INSERT INTO t SELECT a.a, a.b FROM t a, t b, t c, t d", ""),
        (FOREVER + "INSERT INTO t SELECT x, hex(zeroblob(5000)) FROM r", "disk is full"),
        ("SELECT hex(zeroblob(10000000))", "too big"),
        ("SELECT replace(hex(zeroblob(400000)), '0', 'xxxxxxxxxx')", "too big"),
        ("SELECT " + "(" * 900 + "1" + ")" * 900, "overflow|too large"),
        ("SELECT 1 WHERE 1" + " OR 1" * 2000, "tree is too large"),
        ("SELECT " + ", ".join("1" * 1 for _ in range(300)), "too many columns"),
        (" UNION ALL ".join(["SELECT 1"] * 200), "too many terms"),
        (";".join(["SELECT 1"] * 200), "more than 50 statements"),
        ("SELECT 99999999999999999999999 + 1e999", ""),
        ("SELECT '\ud800'", "surrogates"),
        ("SELECT CAST(x'ff00fe' AS TEXT)", ""),
        ("SELECT x'00' || char(0)", ""),
        ("DELETE FROM nowhere", "no such table"),
        ("SELECT 'unfinished", "unrecognized token"),
        ("-- nothing", ""),
        (";;;", ""),
    ],
)
def test_a_statement_stays_within_its_limits(
    database: SqliteDatabase, statement: str, said: str
) -> None:
    started = time.monotonic()
    error = error_of(database, statement)
    if said:
        assert re.search(said, error), error
    assert time.monotonic() - started < 20
    # And the database is there afterwards.
    assert error_of(database, "SELECT count(*) FROM t") == ""


def test_results_without_end_are_cut(database: SqliteDatabase) -> None:
    (result,) = database.run(FOREVER + "SELECT x FROM r").results
    assert (len(result["rows"]), result["is_cut"]) == (1000, True)
    (result,) = database.run("SELECT hex(zeroblob(300000)) FROM t").results
    assert result["is_cut"]
    assert len(result["rows"]) < 5


def test_memory_is_limited(database: SqliteDatabase) -> None:
    """A gigabyte of rows in a temporary table, which SQLite keeps in memory."""
    fill = "CREATE TEMP TABLE big AS SELECT a.b || b.b || c.a AS b FROM t a, t b, t c"
    assert error_of(database, fill) in ("out of memory (limit 64 MiB)", "ended after 0.5 s")
    assert database._child is not None
    status = Path("/proc", str(database._child.pid), "status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) < 160 * 1024
    assert error_of(database, "SELECT count(*) FROM t") == ""


def test_a_killed_runner_loses_what_was_not_committed(database: SqliteDatabase) -> None:
    database.run("DELETE FROM t WHERE a < 10")
    database.run("BEGIN; DELETE FROM t")
    child = database._child
    assert child is not None
    os.kill(child.pid, 9)
    assert "ended" in error_of(database, "SELECT 1")
    (result,) = database.run("SELECT count(*) FROM t").results
    assert result["rows"] == [[190]]


def test_no_process_and_no_file_is_left(engine: SqliteEngine) -> None:
    database = engine.open(engine.prepare(TASK))
    database.run("SELECT 1")
    child, folder = database._child, database._path.parent
    assert child is not None
    database.close()
    database.close()
    assert not folder.exists()
    assert not Path("/proc", str(child.pid)).exists()


def test_runners_have_no_rights_of_root_and_no_environment(database: SqliteDatabase) -> None:
    database.run("SELECT 1")
    assert database._child is not None
    proc = Path("/proc", str(database._child.pid))
    names = {part.split(b"=")[0] for part in (proc / "environ").read_bytes().split(b"\0") if part}
    assert names == {b"LC_ALL"}
    uids = next(line for line in (proc / "status").read_text().splitlines() if "Uid:" in line)
    assert "0" not in uids.split()[1:]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"schema": "CREATE TABEL t (a)"}, 'near "TABEL": syntax error'),
        ({"rows": {"nowhere": [[1]]}}, "no such table: nowhere"),
        ({"rows": {"t": [[1, 2, 3]]}}, "3 values"),
        ({"rows_sql": "INSERT INTO t VALUES (1)"}, "1 values were supplied"),
        ({"solution": "BEGIN; DELETE FROM t"}, "a transaction is left open"),
        ({"answer_query": "SELECT c FROM t"}, "answer_query: no such column"),
        ({"solution": FOREVER + "INSERT INTO t SELECT x, '' FROM r"}, "disk is full|interrupted"),
    ],
)
def test_an_authors_mistake_names_the_field(
    engine: SqliteEngine, fields: dict[str, object], reason: str
) -> None:
    record = {**TASK.as_json(), **fields}
    with pytest.raises(TaskBrokenError, match=reason):
        engine.prepare(SqlTask.from_json(record))


def test_foreign_keys_hold_and_rows_may_come_in_any_order(engine: SqliteEngine) -> None:
    task = SqlTask(
        key="fk",
        prompt="?",
        schema="CREATE TABLE a (id INTEGER PRIMARY KEY);"
        "CREATE TABLE b (a INTEGER REFERENCES a (id) ON DELETE CASCADE)",
        rows={"b": [{"a": 1}], "a": [{"id": 1}]},
        solution="DELETE FROM a",
    )
    prepared = engine.prepare(task)
    assert prepared.expected is not None
    assert prepared.expected["b"].rows == ()
    database = engine.open(prepared)
    assert "FOREIGN KEY" in error_of(database, "INSERT INTO b VALUES (7)")
    database.close()
