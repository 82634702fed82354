"""Makes of a data folder what the tests of migrations start from: a small database, compressed.

    .venv/bin/python -m scripts.release_fixture DATABASE tests/releases/fixtures/0.2.0.sqlite3.xz

For each release: run `make demo EXIT=1` at its tag, stop it, and make the fixture of its database,
`var/db.sqlite3`. Sign-ins, keys, secrets and names of folders are taken out; most rollouts lose
their events and tokens. What was compressed opens as a SQLite file.
"""

from __future__ import annotations

import lzma
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path

FOLDER = "/srv/switchback/var"
ROLLOUTS = 20
"""How many rollouts keep their events and tokens."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    source, target = map(Path, arguments)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy.sqlite3"
        with (
            closing(sqlite3.connect(f"file:{source}?mode=ro", uri=True)) as old,
            closing(sqlite3.connect(copy)) as new,
        ):
            old.backup(new)
        with closing(sqlite3.connect(copy, isolation_level=None)) as database:
            data = _data_folder(database, source)
            _thin(database)
            _anonymise(database, data)
            database.execute("PRAGMA journal_mode=DELETE")
            database.execute("VACUUM")
        target.write_bytes(lzma.compress(copy.read_bytes(), preset=9))
    print(f"{target}: {target.stat().st_size / 1e3:.0f} kB")
    return 0


def _tables(database: sqlite3.Connection) -> set[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in rows}


def _data_folder(database: sqlite3.Connection, source: Path) -> str:
    """Where the installation thought that it lay: rows say so, wherever its file is now."""
    row = database.execute("SELECT folder FROM training_trainingjob LIMIT 1").fetchone()
    return str(Path(row[0]).parents[1]) if row else str(source.resolve().parent)


def _thin(database: sqlite3.Connection) -> None:
    """Rollouts beyond the first lose what they logged, not themselves."""
    kept = f"SELECT id FROM runs_rollout ORDER BY id LIMIT {ROLLOUTS}"
    database.execute(f"DELETE FROM runs_tokenrow WHERE rollout_id NOT IN ({kept})")
    database.execute(
        "DELETE FROM events_event WHERE stream_id IN (SELECT stream_id FROM runs_rollout"
        f" WHERE id NOT IN ({kept}))"
    )
    if "events_text" in _tables(database):
        database.execute("INSERT INTO events_text(events_text) VALUES ('delete-all')")


def _anonymise(database: sqlite3.Connection, data: str) -> None:
    database.execute("DELETE FROM django_session")
    database.execute("UPDATE projects_user SET password = '!', email = ''")
    database.execute("UPDATE agents_modelendpoint SET secret = ''")
    for table in sorted(_tables(database) - {"sqlite_sequence"}):
        if table.startswith("events_text"):
            continue
        for _, column, kind, *_ in database.execute(f'PRAGMA table_info("{table}")').fetchall():
            if kind.lower().startswith(("varchar", "text")):
                database.execute(
                    f'UPDATE "{table}" SET "{column}" = replace("{column}", ?, ?)'
                    f' WHERE instr("{column}", ?)',
                    [data, FOLDER, data],
                )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
