"""From SQLite into PostgreSQL, and backups of PostgreSQL: a real server, under writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.apps import apps
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection, connections
from django.db.migrations.loader import MigrationLoader

from orchestrator.envvars import postgres_options
from orchestrator.events.services import append, create_stream
from orchestrator.events.types import NewEvent
from orchestrator.moving import backup, copying, schema, stacks
from orchestrator.moving.errors import DamagedError, MovingError
from orchestrator.moving.restore import restore
from orchestrator.projects.models import AuditEntry, Project
from tests.base import make_people, make_project
from tests.moving.installations import database, put
from tests.postgres import postgres_server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.stack,
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="moves away from SQLite"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as url:
        yield url


@pytest.fixture
def fresh(server: str) -> Iterator[str]:
    """The alias of a database without tables."""
    with _database(server, "fresh") as alias:
        yield alias


@pytest.fixture(scope="module")
def tables(server: str, django_db_blocker: Any) -> str:
    """The name of a database with all tables and no rows, to make others from."""
    with django_db_blocker.unblock(), _database(server, "tables") as alias:
        schema.bring_to(alias, sorted(MigrationLoader(None).disk_migrations))
    return "tables"


@pytest.fixture
def empty(server: str, tables: str) -> Iterator[str]:
    """The alias of a database with tables and without rows."""
    with _database(server, "empty", template=tables) as alias:
        yield alias


@contextmanager
def _database(server: str, name: str, template: str = "template1") -> Iterator[str]:
    """Made anew, and known under `name`."""
    with psycopg.connect(server, autocommit=True) as admin:
        admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        admin.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    options = postgres_options(_url(server, name), pool_size=1)
    options["OPTIONS"].pop("pool")
    with database(name, **options) as alias:
        yield alias


def _url(server: str, name: str) -> str:
    before, _, query = server.partition("?")
    return f"{before.rpartition('/')[0]}/{name}{'?' if query else ''}{query}"


ODD = {
    "whole": 1e16,
    "big": 2**63,
    "small": 5e-324,
    "text": "ä🙂\t\n\\N",
    "null": None,
    "list": [1.5, []],
}


def _some_rows() -> Any:
    people = make_people()
    stream = create_stream(project=people.project, kind="rollout")
    append(stream_id=stream.pk, items=[NewEvent("told", {"text": "needle in the log"})])
    AuditEntry.objects.create(project=people.project, action="tried", status=200, changes=ODD)
    return stream


def test_everything_arrives_the_same_and_goes_on(fresh: str) -> None:
    stream = _some_rows()
    Project.objects.filter(pk=stream.project_id).update(name="with a NUL \x00")
    planned = stacks.plan(fresh, lambda line: None)
    assert not schema.table_names(fresh)
    done = stacks.move(fresh, lambda line: None)
    assert [table.sha256 for table in planned.tables] == [table.sha256 for table in done.tables]
    assert [table.sha256 for table in copying.survey(fresh, apps).tables] == [
        table.sha256 for table in done.tables
    ]
    assert [table.name for table in done.tables if table.changed] == ["projects_project"]
    there = Project.objects.using(fresh)
    assert there.get(pk=stream.project_id).name == "with a NUL ␀"
    assert AuditEntry.objects.using(fresh).get(action="tried").changes == ODD
    # New rows get numbers of their own, and words are found.
    assert there.create(name="next").pk == Project.objects.latest("pk").pk + 1
    with connections[fresh].cursor() as cursor:
        cursor.execute("SELECT count(*) FROM events_text WHERE words @@ 'needle'::tsquery")
        assert cursor.fetchone() == (1,)
    with pytest.raises(MovingError, match="is not empty"):
        stacks.move(fresh, lambda line: None)


def test_what_does_not_fit_is_named_and_nothing_is_kept(empty: str) -> None:
    project = make_project(name="x" * 101)
    (misfit,) = stacks.plan(empty, lambda line: None).misfits
    assert f"projects_project, row {project.pk}, column name: 101 characters" in misfit
    with pytest.raises(MovingError, match="101 characters"):
        stacks.move(empty, lambda line: None)
    schema.require_empty(empty)


def test_another_content_is_noticed(empty: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that keeps something else than it was given."""
    make_project(name="as it was")
    with connections[empty].cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN NEW.name := 'other'; RETURN NEW; END $$"
        )
        cursor.execute(
            "CREATE TRIGGER spoil BEFORE INSERT ON projects_project"
            " FOR EACH ROW EXECUTE FUNCTION spoil()"
        )
    with pytest.raises(DamagedError, match="projects_project has 1 rows"):
        stacks.move(empty, lambda line: None)
    schema.require_empty(empty)


def test_the_command(server: str, empty: str) -> None:
    make_project()
    url = _url(server, empty)
    call_command("migrate_stack", "--to", url, "--dry-run")
    schema.require_empty(empty)
    call_command("migrate_stack", "--to", url)
    assert Project.objects.using(empty).count() == 1
    with pytest.raises(CommandError, match="is not empty"):
        call_command("migrate_stack", "--to", url)


def test_a_backup_of_postgresql_under_writes(
    server: str, empty: str, tables: str, tmp_path: Path
) -> None:
    """A writer makes pairs, each in one transaction: no backup may hold half of one."""
    _some_rows()
    stacks.move(empty, lambda line: None)
    data, path = tmp_path / "data", tmp_path / "b.zip"
    put(data, {"training/1/x": b"x"})
    stop, counted = threading.Event(), threading.Event()

    def write() -> None:
        with psycopg.connect(_url(server, empty)) as writer:
            made = 0
            while not stop.is_set():
                with writer.transaction():
                    for half in ("a", "b"):
                        writer.execute(
                            "INSERT INTO projects_project (name, created_at) VALUES (%s, now())",
                            [f"{made}{half}"],
                        )
                made += 1
                if made == 20:
                    counted.set()

    before = Project.objects.using(empty).count()
    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert counted.wait(60)
        manifest = backup.write(path, data=data, alias=empty)
    finally:
        stop.set()
        thread.join()
    pairs = manifest.rows["projects_project"] - before
    assert pairs >= 40
    assert pairs % 2 == 0
    with _database(server, "second", template=tables) as second:
        done = restore(path, data=tmp_path / "new", alias=second)
        assert done.files == 1
        assert Project.objects.using(second).count() == manifest.rows["projects_project"]
        assert AuditEntry.objects.using(second).get(action="tried").changes == ODD
        assert Project.objects.using(second).create(name="n").pk > manifest.rows["projects_project"]
        with pytest.raises(MovingError, match="is not empty"):
            restore(path, data=tmp_path / "newer", alias=second)
        assert not (tmp_path / "newer").exists()
        second_path = tmp_path / "again.zip"
        again = backup.write(second_path, data=data, alias=second)
        assert again.migrations == manifest.migrations
