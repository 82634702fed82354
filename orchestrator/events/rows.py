"""Many new rows by plain SQL, in the way of each database: COPY on PostgreSQL, VALUES on SQLite.

A statement with thousands of parameters is put together and read again parameter by parameter;
COPY is a stream of values. It gives no ids back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from django.db import connection

_AT_ONCE = 200
"""Rows of one statement of SQLite, which takes 32,766 parameters."""


def insert_rows(table: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Values are numbers, None and texts; those of JSON columns are the JSON.

    Table and columns are names of ours, not quoted. Raises django.db.Error.
    """
    named = f"{table} ({', '.join(columns)})"
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor, cursor.copy(f"COPY {named} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        return
    mark = f"({', '.join(['%s'] * len(columns))})"
    left = iter(rows)
    with connection.cursor() as cursor:
        while part := list(islice(left, _AT_ONCE)):
            cursor.execute(
                f"INSERT INTO {named} VALUES {', '.join([mark] * len(part))}",
                [value for row in part for value in row],
            )
