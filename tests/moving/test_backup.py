"""A backup of a SQLite installation that is written to, put back into an empty folder."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from io import StringIO
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection

from orchestrator.moving import backup
from orchestrator.moving.errors import MovingError
from orchestrator.moving.restore import restore
from orchestrator.projects.models import Project
from tests.base import make_project
from tests.moving.installations import files_of, put, sqlite_installation
from training.models import Checkpoint

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "sqlite", reason="copies a SQLite file"),
]

INSERT = "INSERT INTO projects_project (name, created_at) VALUES (?, '2026-01-01')"
FILES = {"training/1/publish/v0001/adapter.safetensors": b"weights"}


def test_a_backup_under_writes_is_of_one_moment(tmp_path: Path) -> None:
    """A writer makes pairs, each in one transaction: no backup may hold half of one."""
    data = tmp_path / "data"
    put(data, FILES)
    stop, counted = threading.Event(), threading.Event()
    database = str(connection.settings_dict["NAME"])

    def write() -> None:
        with closing(sqlite3.connect(database, timeout=60)) as writer:
            made = 0
            while not stop.is_set():  # ended by the test
                with writer:
                    for half in ("a", "b"):
                        writer.execute(INSERT, [f"{made}{half}"])
                made += 1
                if made == 20:
                    counted.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert counted.wait(60)
        for number in range(3):
            manifest = backup.write(tmp_path / f"{number}.zip", data=data)
            assert manifest.rows["projects_project"] >= 40
            assert manifest.rows["projects_project"] % 2 == 0
            assert not manifest.moved_meanwhile
    finally:
        stop.set()
        thread.join()


def test_it_comes_back_in_another_folder(tmp_path: Path) -> None:
    old, path = tmp_path / "old", tmp_path / "b.zip"
    put(old, FILES)
    make_project(name="Kept")
    backup.write(path, data=old)
    with sqlite_installation(tmp_path / "new") as new:
        done = restore(path, data=new.data, alias=new.alias)
        assert [project.name for project in Project.objects.using(new.alias)] == ["Kept"]
        assert not done.notes
        assert files_of(new.data) == FILES
        with pytest.raises(MovingError, match="holds a database already"):
            restore(path, data=new.data, alias=new.alias)


def test_paths_lead_to_the_new_folder(tmp_path: Path) -> None:
    old, path = tmp_path / "old", tmp_path / "b.zip"
    put(old, FILES)
    database = str(connection.settings_dict["NAME"])
    with closing(sqlite3.connect(database, timeout=60)) as rows, rows:
        # Without the job that it belongs to: only the paths matter here.
        values = {
            row[1]: "{}" if row[1] == "metrics" else 1
            for row in rows.execute("PRAGMA table_info(training_checkpoint)")
        }
        values["path"] = f"{old}/training/1/publish/v0001"
        values["merge"] = f'{{"folder": "{old}/x"}}'
        rows.execute(
            f"INSERT INTO training_checkpoint ({', '.join(values)})"
            f" VALUES ({', '.join('?' for _ in values)})",
            [*values.values()],
        )
    backup.write(path, data=old)
    with sqlite_installation(tmp_path / "new") as new:
        done = restore(path, data=new.data, alias=new.alias)
        kept = Checkpoint.objects.using(new.alias).values("path", "merge").get()
    assert done.paths == 2
    assert kept == {
        "path": f"{new.data}/training/1/publish/v0001",
        "merge": {"folder": f"{new.data}/x"},
    }
    assert (Path(str(kept["path"])) / "adapter.safetensors").read_bytes() == b"weights"


def test_the_key_is_told_and_taken_along_when_asked(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    bare, with_key = tmp_path / "bare.zip", tmp_path / "key.zip"
    key = settings.SECRET_KEY
    assert any("SECRET_KEY" in part for part in backup.write(bare, data=data).left_out)
    backup.write(with_key, data=data, with_key=True)
    given = os.environ.pop("SECRET_KEY")
    try:
        settings.SECRET_KEY = "another-key-of-the-empty-folder-0123456789"
        with sqlite_installation(tmp_path / "1") as new:
            (note,) = restore(bare, data=new.data, alias=new.alias).notes
            assert "SECRET_KEY_PREVIOUS" in note
        with sqlite_installation(tmp_path / "2") as new:
            assert not restore(with_key, data=new.data, alias=new.alias).notes
            assert (new.data / "secret_key").read_text() == key
            assert (new.data / "secret_key").stat().st_mode & 0o777 == 0o600
    finally:
        settings.SECRET_KEY, os.environ["SECRET_KEY"] = key, given


def test_the_command_writes_checks_and_refuses(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    out = StringIO()
    call_command("backup", str(path), "--no-files", stdout=out)
    call_command("backup", str(path), "--verify", stdout=out)
    assert "Not in it: all files." in out.getvalue()
    assert f"{path} is whole: " in out.getvalue()
    with pytest.raises(CommandError, match="exists: name another file"):
        call_command("backup", str(path))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CommandError, match="cut off"):
        call_command("backup", str(path), "--verify")


@pytest.mark.slow
def test_restoring_as_an_operator_types_it(tmp_path: Path) -> None:
    make_project(name="Typed")
    path = tmp_path / "b.zip"

    def manage(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=settings.BASE_DIR,
            env={**os.environ, **environ},
            capture_output=True,
            text=True,
            timeout=300,
        )

    backup.write(path, data=tmp_path)
    new = tmp_path / "new"
    target = {
        "DJANGO_SETTINGS_MODULE": "orchestrator.settings",
        "SWITCHBACK_DATA": str(new),
    }
    answer = manage("restore", str(path), **target)
    assert answer.returncode == 0, answer.stderr
    with closing(sqlite3.connect(new / "db.sqlite3")) as rows:
        assert rows.execute("SELECT name FROM projects_project").fetchall() == [("Typed",)]
    again = manage("restore", str(path), **target)
    assert again.returncode == 1
    assert "holds a database already" in again.stderr
    assert "Traceback" not in again.stderr


def test_a_restore_of_a_newer_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.zip"
    with sqlite_installation(tmp_path / "first") as first:
        with closing(sqlite3.connect(first.database)) as rows, rows:
            rows.execute("CREATE TABLE django_migrations (app TEXT, name TEXT)")
            rows.execute("INSERT INTO django_migrations VALUES ('runs', '0999_of_tomorrow')")
        backup.write(path, data=first.data, alias=first.alias)
    with (
        sqlite_installation(tmp_path / "new") as new,
        pytest.raises(MovingError, match=r"runs\.0999_of_tomorrow"),
    ):
        restore(path, data=new.data, alias=new.alias)
    assert not (tmp_path / "new" / "db.sqlite3").exists()
