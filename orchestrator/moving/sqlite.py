"""A SQLite database in a backup: the file that SQLite's own online backup makes.

The copy is made in one step under a read lock, which in WAL mode stops nobody who writes, so it is
the database of one moment.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from orchestrator.moving.archive import Reader, Writer
from orchestrator.moving.errors import DamagedError, MovingError

MEMBER = "database.sqlite3"


@contextmanager
def snapshot(database: Path, beside: Path) -> Iterator[Path]:
    """A copy of the database in a folder of its own beside `beside`, removed at the end."""
    with tempfile.TemporaryDirectory(dir=beside.parent, prefix=".snapshot-") as folder:
        copy = Path(folder) / MEMBER
        with (
            closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
            # One file, without a log beside it.
            target.execute("PRAGMA journal_mode=DELETE")
        yield copy


def dump(copy: Path, writer: Writer) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Packs a snapshot; returns its migrations and the rows of each table."""
    migrations, rows = facts(copy)
    writer.add_file(MEMBER, copy, mode=0o600)
    return migrations, rows


def facts(database: Path) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Raises DamagedError if SQLite finds the file damaged."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        try:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise DamagedError(f"SQLite finds the database damaged: {verdict}")
            tables = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
                )
            ]
            rows = {table: _count(connection, table) for table in tables}
            migrations = sorted(connection.execute("SELECT app, name FROM django_migrations"))
        except sqlite3.Error as error:
            raise DamagedError(f"The database cannot be read: {error}") from error
    return migrations, rows


def _count(connection: sqlite3.Connection, table: str) -> int:
    quoted = table.replace('"', '""')
    return int(connection.execute(f'SELECT count(*) FROM "{quoted}"').fetchone()[0])


def check(reader: Reader, beside: Path) -> None:
    """Opens the packed database. Raises DamagedError."""
    with tempfile.TemporaryDirectory(dir=beside.parent, prefix=".verify-") as folder:
        copy = Path(folder) / MEMBER
        reader.extract(MEMBER, copy)
        migrations, rows = facts(copy)
    if rows != reader.manifest.rows or migrations != reader.manifest.migrations:
        raise DamagedError("The database in the backup is not what its manifest says.")


def require_empty(database: Path) -> None:
    """Raises MovingError if there is a database with tables."""
    if not database.exists() or not database.stat().st_size:
        return
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise MovingError(
                f"{database} holds a database already. Nothing was changed; restore into an empty "
                "folder, named by SWITCHBACK_DATA."
            )


def load(database: Path, reader: Reader) -> None:
    """Puts the packed database in place, whole or not at all."""
    draft = database.with_name(f".{database.name}.{os.getpid()}.part")
    draft.unlink(missing_ok=True)
    try:
        reader.extract(MEMBER, draft)
        for suffix in ("-wal", "-shm"):  # of the empty file that stood there
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        draft.replace(database)
    finally:
        draft.unlink(missing_ok=True)
