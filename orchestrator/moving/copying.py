"""Rows of all models from one database into another: a batch at a time, all or nothing.

The models say what the columns mean, so that the same rows come out of both databases; which
models there are is asked of the app registry, or of the registry of an older point of the
migrations. Everything is written, read back and compared by content in one transaction of the
target: a copy that was cut off has left nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.apps.registry import Apps
from django.core.exceptions import FieldDoesNotExist
from django.db import connections, models, transaction
from psycopg.types.json import Jsonb

from orchestrator.moving.errors import DamagedError, MovingError
from orchestrator.moving.postgres import clear, reset_sequences
from orchestrator.moving.values import Digest, storable

_BATCH = 2_000
_INTEGERS: dict[str, tuple[int, int]] = {
    "SmallIntegerField": (-(2**15), 2**15 - 1),
    "PositiveSmallIntegerField": (0, 2**15 - 1),
    "IntegerField": (-(2**31), 2**31 - 1),
    "PositiveIntegerField": (0, 2**31 - 1),
}
_SHOWN = 20


@dataclass
class Table:
    name: str
    rows: int
    sha256: str
    changed: int = 0
    """Rows with characters that PostgreSQL does not store; kept with stand-ins."""


@dataclass
class Survey:
    tables: list[Table] = field(default_factory=list)
    misfits: list[str] = field(default_factory=list)
    """Values that SQLite took and PostgreSQL would refuse, the first of them."""
    misfit_count: int = 0

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def changed(self) -> int:
        return sum(table.changed for table in self.tables)


def tables(registry: Apps) -> list[type[models.Model]]:
    """One model for each table, by name."""
    found: dict[str, type[models.Model]] = {}
    for model in registry.get_models(include_auto_created=True):
        if model._meta.managed and not model._meta.proxy:
            found.setdefault(model._meta.db_table, model)
    return [found[name] for name in sorted(found)]


def survey(source: str, registry: Apps, say: Callable[[str], None] = lambda line: None) -> Survey:
    """Reads everything and writes nothing: what there is, and what would not fit."""
    found = Survey()
    for model in tables(registry):
        digest, changed = Digest(), 0
        for row in _rows(source, model):
            fit = [storable(value) for value in row]
            changed += fit != row
            digest.add(fit)
            _note_misfits(found, model, fit)
        found.tables.append(Table(model._meta.db_table, digest.rows, digest.hex(), changed))
        if digest.rows:
            say(f"{model._meta.db_table}: {digest.rows:,} rows")
    return found


def copy(
    source: str, target: str, registry: Apps, say: Callable[[str], None] = lambda line: None
) -> Survey:
    """Raises MovingError; the target, PostgreSQL without rows of anybody, is then as it was."""
    done = Survey()
    connection = connections[target]
    quote = connection.ops.quote_name
    wanted = tables(registry)
    with transaction.atomic(using=target), connection.cursor() as cursor:
        # Content types and permissions have their numbers from the source.
        clear(cursor, (quote(model._meta.db_table) for model in wanted))
        digests: list[Digest] = []
        for model in wanted:
            digest, changed = _copy_table(cursor, source, model, quote, done)
            digests.append(digest)
            done.tables.append(Table(model._meta.db_table, digest.rows, digest.hex(), changed))
            if digest.rows:
                say(f"{model._meta.db_table}: {digest.rows:,} rows copied")
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        reset_sequences(cursor)
        for model, digest in zip(wanted, digests, strict=True):
            _require_same(target, model, digest)
            if digest.rows:
                say(f"{model._meta.db_table}: {digest.rows:,} rows compared")
    return done


def _copy_table(
    cursor: Any, source: str, model: type[models.Model], quote: Callable[[str], str], done: Survey
) -> tuple[Digest, int]:
    fields = model._meta.local_concrete_fields
    digest, changed = Digest(), 0
    listed = ", ".join(quote(str(field.column)) for field in fields)
    statement = f"COPY {quote(model._meta.db_table)} ({listed}) FROM STDIN"
    with cursor.copy(statement) as out:
        for row in _rows(source, model):
            fit = [storable(value) for value in row]
            changed += fit != row
            digest.add(fit)
            _note_misfits(done, model, fit)
            if done.misfits:
                raise MovingError(f"{done.misfits[0]}. Nothing was copied.")
            out.write_row([_bound(f, value) for f, value in zip(fields, fit, strict=True)])
    return digest, changed


def _rows(alias: str, model: type[models.Model]) -> Iterator[list[Any]]:
    names = [field.attname for field in model._meta.local_concrete_fields]
    rows = model._base_manager.using(alias).order_by("pk").values_list(*names)
    for row in rows.iterator(chunk_size=_BATCH):
        yield list(row)


def _bound(column: models.Field[Any, Any], value: Any) -> Any:
    if isinstance(column, models.JSONField):
        # Without a value, unless the column must have one: then it is JSON's own null.
        return None if value is None and column.null else Jsonb(value)
    return value


def _require_same(alias: str, model: type[models.Model], expected: Digest) -> None:
    found = Digest()
    for row in _rows(alias, model):
        found.add(row)
    if found != expected:
        raise DamagedError(
            f"{model._meta.db_table} has {found.rows:,} rows with hash {found.hex()[:16]} in the "
            f"target, and {expected.rows:,} with {expected.hex()[:16]} were read. Nothing was kept."
        )


def _note_misfits(found: Survey, model: type[models.Model], row: Sequence[Any]) -> None:
    """SQLite enforces neither lengths nor the ranges of integers."""
    for column, value in zip(model._meta.local_concrete_fields, row, strict=True):
        problem = _misfit(column, value)
        if problem:
            found.misfit_count += 1
            if len(found.misfits) < _SHOWN:
                key = row[model._meta.local_concrete_fields.index(_key(model))]
                found.misfits.append(
                    f"{model._meta.db_table}, row {key}, column {column.column}: {problem}"
                )


def _key(model: type[models.Model]) -> Any:
    if model._meta.pk is None:
        raise FieldDoesNotExist(f"{model._meta.label} has no primary key")
    return model._meta.pk


def _misfit(column: models.Field[Any, Any], value: Any) -> str:
    if isinstance(value, str) and isinstance(column, models.CharField):
        most = column.max_length
        if most is not None and len(value) > most:
            return f"{len(value)} characters, at most {most} fit"
    elif isinstance(value, int):
        least, largest = _INTEGERS.get(column.get_internal_type(), (value, value))
        if not least <= value <= largest:
            return f"{value} is not within {least} and {largest}"
    return ""
