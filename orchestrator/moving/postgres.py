"""A PostgreSQL database in a backup: one COPY per table, all from one snapshot.

Every table of the schema is taken as the catalogue names it, the full-text index too. A restore
makes the schema by migrations, up to the point that the backup was written at, and loads all
tables in one transaction: all of it is there in the end, or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connections, transaction

from orchestrator.moving.archive import Manifest, Reader, Writer
from orchestrator.moving.errors import DamagedError
from orchestrator.moving.schema import applied, bring_to, table_names

_FOLDER = "database"
_COLUMNS = (
    "SELECT a.attname FROM pg_attribute a WHERE a.attrelid = %s::regclass AND a.attnum > 0"
    " AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum"
)
# Columns whose values come from a sequence, identity columns as well as serial ones.
_SEQUENCES = (
    "SELECT c.oid::regclass::text, a.attname,"
    " pg_get_serial_sequence(c.oid::regclass::text, a.attname)"
    " FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid"
    " JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE c.relkind IN ('r', 'p') AND n.nspname = current_schema() AND a.attnum > 0"
    " AND NOT a.attisdropped"
    " AND pg_get_serial_sequence(c.oid::regclass::text, a.attname) IS NOT NULL"
)


def dump(alias: str, writer: Writer) -> Manifest:
    """Packs all tables; the manifest has what the database says of itself."""
    manifest = Manifest("", "", "postgresql", "", [], {}, "")
    connection = connections[alias]
    with transaction.atomic(using=alias), connection.cursor() as cursor:
        # The first statement: from here on everything is read as of this moment.
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        manifest.migrations = applied(alias)
        for table in table_names(alias):
            quoted = connection.ops.quote_name(table)
            cursor.execute(_COLUMNS, [quoted])
            columns = [name for (name,) in cursor.fetchall()]
            listed = _listed(alias, columns)
            rows = 0
            # Of a query, since a partitioned table cannot be copied as such.
            statement = f"COPY (SELECT {listed} FROM {quoted}) TO STDOUT"
            with writer.open(member(table), mode=0o600) as write, cursor.copy(statement) as copy:
                for piece in copy:
                    rows += bytes(piece).count(b"\n")
                    write(bytes(piece))
            manifest.columns[table], manifest.rows[table] = columns, rows
            writer.say(f"{table}: {rows:,} rows")
    return manifest


def check(reader: Reader) -> None:
    """Counts the rows of each table. Raises DamagedError."""
    for table, expected in reader.manifest.rows.items():
        # A line end within a value is written as a backslash and an n.
        found = sum(piece.count(b"\n") for piece in reader.pieces(member(table)))
        if found != expected:
            raise DamagedError(f"{table} in the backup has {found:,} rows instead of {expected:,}.")


def load(alias: str, reader: Reader) -> None:
    """Fills an empty database. Raises MovingError with nothing loaded."""
    bring_to(alias, reader.manifest.migrations)
    connection = connections[alias]
    have = set(table_names(alias))
    if missing := sorted(set(reader.manifest.columns) - have):
        raise DamagedError(f"The backup has tables that its migrations do not make: {missing[0]}.")
    with transaction.atomic(using=alias), connection.cursor() as cursor:
        # What the migrations themselves put there comes from the backup.
        clear(cursor, map(connection.ops.quote_name, sorted(have)))
        for table, columns in reader.manifest.columns.items():
            quoted = connection.ops.quote_name(table)
            statement = f"COPY {quoted} ({_listed(alias, columns)}) FROM STDIN"
            with cursor.copy(statement) as copy:
                for piece in reader.pieces(member(table)):
                    copy.write(piece)
            cursor.execute(f"SELECT count(*) FROM {quoted}")
            if (found := cursor.fetchone()[0]) != (expected := reader.manifest.rows[table]):
                raise DamagedError(f"{table} has {found:,} rows instead of {expected:,}.")
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        reset_sequences(cursor)


def clear(cursor: Any, quoted: Iterable[str]) -> None:
    """Empties tables that hold next to nothing. Not TRUNCATE, which fires triggers of its own."""
    for table in quoted:
        cursor.execute(f"DELETE FROM {table}")


def reset_sequences(cursor: Any) -> None:
    """The next id of each table follows the largest that it has."""
    cursor.execute(_SEQUENCES)
    for table, column, sequence in cursor.fetchall():
        quoted = '"' + column.replace('"', '""') + '"'
        cursor.execute(
            f"SELECT setval(%s, coalesce(max({quoted}), 1), max({quoted}) IS NOT NULL)"
            f" FROM {table}",
            [sequence],
        )


def member(table: str) -> str:
    return f"{_FOLDER}/{table}.copy"


def _listed(alias: str, columns: list[str]) -> str:
    return ", ".join(map(connections[alias].ops.quote_name, columns))
