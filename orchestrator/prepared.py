"""Queries that are compiled once: Django takes .5 to 1 ms to write the SQL of a query that SQLite
answers in .05 ms, and writes it anew each time.

    _newest = Prepared(
        lambda project, slug: EnvironmentVersion.objects.filter(
            environment__project=project, environment__slug=slug
        ).order_by("-number"),
        project=int,
        slug=str,
    )
    version = _newest.first(project=3, slug="sums")

Worth it for the few queries of addresses that programs call many times a second. The query set is
built with stand-ins for the values, and what Django makes of it is kept for each kind of database;
objects are made as by the query set, related ones of `select_related` too. Values go where a
stand-in came out unchanged: comparisons with whole numbers and texts. Annotations and prefetching
are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.db.models.query import get_related_populators

M = TypeVar("M", bound=Model)
_INT, _STR = 2_100_000_001, "\N{WHITE SQUARE}stand-in\N{WHITE SQUARE}"
"""Within the range of a 32-bit column: for a number beyond it Django finds nothing, unasked."""


@dataclass(frozen=True)
class _Place:
    """Where a value goes among the parameters."""

    name: str


@dataclass(frozen=True)
class _Compiled:
    model: type[Model]
    sql: str
    parameters: tuple[Any, ...]
    first_column: int
    end_column: int
    fields: tuple[str, ...]
    populators: Sequence[Any]
    converters: Sequence[tuple[int, Sequence[Callable[..., Any]], Any]]


class Prepared(Generic[M]):
    """A query set as a function of its values."""

    def __init__(self, build: Callable[..., QuerySet[M]], **kinds: type[int] | type[str]) -> None:
        self._build = build
        self._kinds = kinds
        self._compiled: dict[tuple[str, bool], _Compiled] = {}

    def first(self, **values: int | str) -> M | None:
        """In the order of the query set; None where nothing matches."""
        found = self._found(values, is_one=True)
        return found[0] if found else None

    def all(self, **values: int | str) -> list[M]:
        return self._found(values, is_one=False)

    def _found(self, values: dict[str, int | str], *, is_one: bool) -> list[M]:
        if values.keys() != self._kinds.keys():
            raise TypeError(f"takes {', '.join(self._kinds)}; given {', '.join(values)}")
        connection = connections[DEFAULT_DB_ALIAS]
        key = (connection.vendor, is_one)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(is_one=is_one)
        parameters = [
            self._kinds[each.name](values[each.name]) if isinstance(each, _Place) else each
            for each in compiled.parameters
        ]
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, parameters)
            rows = cursor.fetchall()
        return [self._made(compiled, row, connection) for row in rows]

    def _compile(self, *, is_one: bool) -> _Compiled:
        stand_ins: dict[str, int | str] = {
            name: _INT + place if kind is int else f"{_STR}{place}"
            for place, (name, kind) in enumerate(self._kinds.items())
        }
        query_set: Any = self._build(**stand_ins)
        if is_one:
            query_set = (query_set if query_set.ordered else query_set.order_by("pk"))[:1]
        compiler = query_set.query.get_compiler(using=DEFAULT_DB_ALIAS)
        sql, parameters = compiler.as_sql()
        if compiler.annotation_col_map or query_set._prefetch_related_lookups:
            raise TypeError("annotations and prefetching are not prepared")
        places: dict[int | str, Any] = {
            stand_in: _Place(name) for name, stand_in in stand_ins.items()
        }
        placed = tuple(
            places.get(each, each) if isinstance(each, int | str) else each for each in parameters
        )
        if lost := self._kinds.keys() - {e.name for e in placed if isinstance(e, _Place)}:
            raise TypeError(f"the query does not compare with {', '.join(sorted(lost))}")
        select, described = compiler.select, compiler.klass_info
        first, end = described["select_fields"][0], described["select_fields"][-1] + 1
        converters = compiler.get_converters([each[0] for each in select[: compiler.col_count]])
        return _Compiled(
            described["model"],
            sql,
            placed,
            first,
            end,
            tuple(each[0].target.attname for each in select[first:end]),
            # The stubs are those of a later Django.
            get_related_populators(described, select, DEFAULT_DB_ALIAS),  # type: ignore[call-arg]
            [(place, functions, field) for place, (functions, field) in converters.items()],
        )

    def _made(self, compiled: _Compiled, row: Sequence[Any], connection: BaseDatabaseWrapper) -> M:
        values = list(row)
        for place, functions, field in compiled.converters:
            for function in functions:
                values[place] = function(values[place], field, connection)
        made: Any = compiled.model.from_db(
            DEFAULT_DB_ALIAS, compiled.fields, values[compiled.first_column : compiled.end_column]
        )
        for populator in compiled.populators:
            populator.populate(values, made)
        return cast(M, made)
