"""Rows that are alike but for a few columns, in one statement.

`bulk_create` prepares every field of every object: for a run of ten rollouts that took longer than
all other work on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from django.db import connection
from django.db.models import Model

_AT_ONCE = 500
"""Rows in a statement; with 60 columns just below SQLite's limit of 32,766 parameters."""


def insert_alike(alike: Model, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Inserts a row for each mapping and gives their ids, in order. Sends no signals.

    A row has the values of `alike`, but for the columns that the mapping names by `attname`; all
    mappings name the same. Needs a transaction. Raises TypeError for a value that only the database
    can work out, and what the database raises.
    """
    if not rows:
        return []
    meta = alike._meta
    fields: list[Any] = [each for each in meta.concrete_fields if not each.primary_key]
    own = {each.attname: each for each in fields if each.attname in rows[0]}
    if missing := rows[0].keys() - own.keys():
        raise TypeError(f"{meta.label} has no column {', '.join(sorted(missing))}")
    values: list[Any] = []
    for each in fields:
        value = None if each.attname in own else each.pre_save(alike, True)
        if hasattr(value, "resolve_expression"):
            raise TypeError(f"{each.attname} is an expression")
        values.append(None if value is None else each.get_db_prep_save(value, connection))
    places = [(place, each) for place, each in enumerate(fields) if each.attname in own]
    name = connection.ops.quote_name
    pk: Any = meta.pk
    into = (
        f"INSERT INTO {name(meta.db_table)} ({', '.join(name(each.column) for each in fields)})"
        " VALUES "
    )
    row_sql = f"({', '.join(['%s'] * len(fields))})"
    made: list[int] = []
    with connection.cursor() as cursor:
        for first in range(0, len(rows), _AT_ONCE):
            filled: list[list[Any]] = []
            for row in rows[first : first + _AT_ONCE]:
                full = values.copy()
                for place, each in places:
                    full[place] = each.get_db_prep_save(row[each.attname], connection)
                filled.append(full)
            cursor.execute(
                f"{into}{', '.join([row_sql] * len(filled))} RETURNING {name(pk.column)}",
                list(chain.from_iterable(filled)),
            )
            made.extend(row[0] for row in cursor.fetchall())
    return made
