"""Rows in one statement, prepared once where they are alike.

`bulk_create` prepares every field of every object and `save` composes its statement anew: for a run
of ten rollouts both took longer than all other work on them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import Any

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model
from django.db.models.signals import post_save, pre_save

_AT_ONCE = 500
"""Rows in a statement; with 60 columns just below SQLite's limit of 32,766 parameters."""


def insert(one: Model) -> None:
    """As `save(force_insert=True)` of a new object whose key the database chooses."""
    kind = type(one)
    told: dict[str, Any] = {"raw": False, "using": DEFAULT_DB_ALIAS, "update_fields": None}
    pre_save.send(sender=kind, instance=one, **told)
    (one.pk,) = insert_alike(one, [{}])
    one._state.adding, one._state.db = False, DEFAULT_DB_ALIAS
    post_save.send(sender=kind, instance=one, created=True, **told)


def insert_alike(alike: Model, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Inserts a row for each mapping and gives their ids, in order. Sends no signals.

    A row has the values of `alike`, but for the columns that the mapping names by `attname`; all
    mappings name the same. More than 500 need a transaction. Raises TypeError for a value that only
    the database can work out, and what the database raises.
    """
    if not rows:
        return []
    connection = connections[DEFAULT_DB_ALIAS]
    table = _table(type(alike), connection.vendor)
    own = rows[0].keys()
    if missing := own - table.names:
        raise TypeError(f"{alike._meta.label} has no column {', '.join(sorted(missing))}")
    values = [
        None if each.attname in own else _prepared(each, alike, connection) for each in table.fields
    ]
    places = [(place, each) for place, each in enumerate(table.fields) if each.attname in own]
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
                f"{table.into}{', '.join([table.row] * len(filled))}{table.giving}",
                list(chain.from_iterable(filled)),
            )
            made.extend(row[0] for row in cursor.fetchall())
    return made


@dataclass(frozen=True)
class _Table:
    fields: Sequence[Any]
    names: frozenset[str]
    into: str
    row: str
    giving: str


@cache
def _table(model: type[Model], vendor: str) -> _Table:
    name = connections[DEFAULT_DB_ALIAS].ops.quote_name
    fields: list[Any] = [each for each in model._meta.concrete_fields if not each.primary_key]
    pk: Any = model._meta.pk
    columns = ", ".join(name(each.column) for each in fields)
    return _Table(
        fields,
        frozenset(each.attname for each in fields),
        f"INSERT INTO {name(model._meta.db_table)} ({columns}) VALUES ",
        f"({', '.join(['%s'] * len(fields))})",
        f" RETURNING {name(pk.column)}",
    )


def _prepared(field: Any, alike: Model, connection: BaseDatabaseWrapper) -> Any:
    value = field.pre_save(alike, True)
    if value is None:
        return None
    if hasattr(value, "resolve_expression"):
        raise TypeError(f"{field.attname} is an expression")
    return field.get_db_prep_save(value, connection)
