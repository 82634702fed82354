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
stand-in came out unchanged: comparisons with whole numbers and texts, and `__in` with whole numbers
(`list`), for which the query is compiled with 1, 4, 16 and 64 places; longer lists, and numbers
beyond 64 bits, are asked by the query set itself. Annotations and prefetching are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from django.core.exceptions import EmptyResultSet
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model, QuerySet
from django.db.models.query import get_related_populators
from django.db.transaction import TransactionManagementError

M = TypeVar("M", bound=Model)
Value = int | str | Sequence[int]
_INT, _STR = 2_100_000_001, "\N{WHITE SQUARE}stand-in\N{WHITE SQUARE}"
"""Within the range of a 32-bit column: for a number beyond it Django finds nothing, unasked."""
_SIZES = (1, 4, 16, 64)


@dataclass(frozen=True)
class _Place:
    """Where a value, or one of a list, goes among the parameters."""

    name: str
    number: int = 0


@dataclass(frozen=True)
class _Converter:
    """Of a column's value. What the database's operations bring along is kept without them: they
    hold the connection of the thread that compiled the query.
    """

    function: Callable[..., Any]
    is_of_operations: bool

    def __call__(self, value: Any, field: Any, connection: BaseDatabaseWrapper) -> Any:
        own = (connection.ops,) if self.is_of_operations else ()
        return self.function(*own, value, field, connection)


@dataclass(frozen=True)
class _Compiled:
    model: type[Model]
    sql: str
    parameters: tuple[Any, ...]
    first_column: int
    end_column: int
    fields: tuple[str, ...]
    populators: Sequence[Any]
    converters: Sequence[tuple[int, Sequence[_Converter], Any]]
    locks: bool


class Prepared(Generic[M]):
    """A query set as a function of its values."""

    def __init__(
        self, build: Callable[..., QuerySet[M]], **kinds: type[int] | type[str] | type[list[int]]
    ) -> None:
        self._build = build
        self._kinds = kinds
        self._compiled: dict[tuple[Any, ...], _Compiled] = {}

    def first(self, **values: Value) -> M | None:
        """In the order of the query set; None where nothing matches."""
        found = self._found(values, is_one=True)
        return found[0] if found else None

    def all(self, **values: Value) -> list[M]:
        return self._found(values, is_one=False)

    def _found(self, values: dict[str, Value], *, is_one: bool) -> list[M]:
        if values.keys() != self._kinds.keys():
            raise TypeError(f"takes {', '.join(self._kinds)}; given {', '.join(values)}")
        given = {name: self._given(name, value) for name, value in values.items()}
        sizes = tuple(len(given[name]) for name in self._kinds)
        if 0 in sizes:
            return []
        if max(sizes, default=0) > _SIZES[-1] or any(map(_is_beyond_columns, given.values())):
            query_set = self._build(**values)
            return list(query_set[:1] if is_one else query_set)
        connection = connections[DEFAULT_DB_ALIAS]
        key = (connection.vendor, is_one, sizes)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(sizes, is_one=is_one)
        if compiled.locks and connection.get_autocommit():
            # Django says so when it composes the query, which is done.
            raise TransactionManagementError("select_for_update needs a transaction")
        parameters = [
            given[each.name][each.number] if isinstance(each, _Place) else each
            for each in compiled.parameters
        ]
        with connection.cursor() as cursor:
            cursor.execute(compiled.sql, parameters)
            rows = cursor.fetchall()
        return [self._made(compiled, row, connection) for row in rows]

    def _given(self, name: str, value: Value) -> Sequence[int | str]:
        """A list is filled up to one of the sizes by its last number, which finds nothing new."""
        kind = self._kinds[name]
        if not issubclass(kind, list):
            return [kind(cast(Any, value))]
        numbers = [int(each) for each in cast(Sequence[int], value)]
        size = next((each for each in _SIZES if each >= len(numbers)), len(numbers))
        return numbers + numbers[-1:] * (size - len(numbers))

    def _compile(self, sizes: Sequence[int], *, is_one: bool) -> _Compiled:
        stand_ins: dict[str, Any] = {}
        places: dict[int | str, _Place] = {}
        for (name, kind), size in zip(self._kinds.items(), sizes, strict=True):
            own: list[int | str] = [
                f"{_STR}{len(places)}" if kind is str else _INT + len(places) + number
                for number in range(size)
            ]
            places.update({each: _Place(name, number) for number, each in enumerate(own)})
            stand_ins[name] = own if issubclass(kind, list) else own[0]
        query_set: Any = self._build(**stand_ins)
        if is_one:
            query_set = (query_set if query_set.ordered else query_set.order_by("pk"))[:1]
        compiler = query_set.query.get_compiler(using=DEFAULT_DB_ALIAS)
        try:
            sql, parameters = compiler.as_sql()
        except EmptyResultSet as nothing:
            raise TypeError("the query finds nothing, whatever it is given") from nothing
        if compiler.annotation_col_map or query_set._prefetch_related_lookups:
            raise TypeError("annotations and prefetching are not prepared")
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
            [
                (place, [_kept(each, compiler.connection) for each in functions], field)
                for place, (functions, field) in converters.items()
            ],
            bool(query_set.query.select_for_update),
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


def _kept(function: Callable[..., Any], connection: BaseDatabaseWrapper) -> _Converter:
    owner = getattr(function, "__self__", None)
    if owner is connection.ops:
        return _Converter(cast(Any, function).__func__, is_of_operations=True)
    return _Converter(function, is_of_operations=False)


def _is_beyond_columns(values: Sequence[int | str]) -> bool:
    return any(isinstance(each, int) and abs(each) >= 2**63 for each in values)
