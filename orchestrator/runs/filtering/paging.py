"""Sorted rows in pages by keys: the next page is what comes after the last row, both ways.

What has no value to sort by comes last in either direction. A cursor is the sorted value and the id
of a row, as opaque text; rows that appear or go meanwhile shift no page.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from django.db import connection
from django.db.models import BooleanField, F, Func, Model, Q, QuerySet, Subquery

M = TypeVar("M", bound=Model)


@dataclass(frozen=True)
class Key:
    """What a list can be sorted by."""

    place: Any
    """A path of the ORM or an expression."""
    is_nullable: bool = False
    is_time: bool = False
    is_scattered: bool = False
    """The rows of a list lie anywhere in its index, between those of other lists: PostgreSQL, which
    takes them to be spread evenly, would walk past all others to reach the oldest.
    """


@dataclass(frozen=True)
class Page(Generic[M]):
    rows: Sequence[M]
    before: str
    """Cursor of the page before; empty on the first."""
    after: str
    """Cursor of the next page; empty on the last."""


class BadCursor(ValueError):
    """A cursor that this list did not give out."""


def page_of(
    query: QuerySet[M],
    keys: Mapping[str, Key],
    sort: str,
    *,
    after: str = "",
    before: str = "",
    limit: int = 50,
) -> Page[M]:
    """`sort`: a name of `keys`, descending with a minus before it. One query.

    BadCursor if a cursor is not of this sort.
    """
    name, is_down = sort.removeprefix("-"), sort.startswith("-")
    key = keys[name]
    is_back = bool(before)
    placed: Any = query.annotate(sorted_by=_expression(key))
    if after or before:
        value, pk = _read(before or after, name, key)
        placed = placed.filter(_beyond(key, value, pk, is_down=is_down != is_back, is_back=is_back))
    goes_down = is_down != is_back
    nulls: dict[str, bool] = {}
    if key.is_nullable:
        nulls = {"nulls_first": True} if is_back else {"nulls_last": True}
    place = F("sorted_by")
    order = place.desc(**nulls) if goes_down else place.asc(**nulls)
    by_id = "-pk" if goes_down else "pk"
    in_order = [by_id] if key.place == "id" else [order, by_id]
    # Sorted by keys alone: a database that sorts whole rows carries every column of every match.
    keyed: list[Any] = list(in_order)
    if key.is_scattered and connection.vendor == "postgresql":
        keyed = [(F("pk") + 0).desc() if goes_down else (F("pk") + 0).asc()]
    ids = placed.order_by(*keyed).values("pk")[: limit + 1]
    # And without the filter, which the keys have passed.
    shown: Any = query.annotate(sorted_by=_expression(key))
    shown.query.clear_where()
    found = list(shown.filter(_among(ids)).order_by(*in_order))
    more, rows = len(found) > limit, found[:limit]
    if is_back:
        rows.reverse()
    if not rows:
        return Page((), "", "")
    has_before = more if is_back else bool(after)
    has_after = True if is_back else more
    return Page(
        rows,
        before=_written(rows[0], name) if has_before else "",
        after=_written(rows[-1], name) if has_after else "",
    )


class _Keys(Subquery):
    template = "ARRAY(%(subquery)s)"


def _among(ids: QuerySet[Any]) -> Any:
    """PostgreSQL joins all of a list's tables before it looks at a subquery with IN, since they are
    more than its `join_collapse_limit`; an array of keys it looks up.
    """
    if connection.vendor != "postgresql":
        return Q(pk__in=ids)
    return Func(
        F("pk"),
        _Keys(ids),
        template="(%(expressions)s))",
        arg_joiner=" = ANY(",
        output_field=BooleanField(),
    )


def _expression(key: Key) -> Any:
    return F(key.place) if isinstance(key.place, str) else key.place


def _beyond(key: Key, value: Any, pk: int, *, is_down: bool, is_back: bool) -> Q:
    """What follows a row in the direction of reading."""
    side = "lt" if is_down else "gt"
    if key.place == "id":
        return Q(**{f"pk__{side}": pk})
    if value is None:
        ties = Q(sorted_by__isnull=True, **{f"pk__{side}": pk})
        return Q(sorted_by__isnull=False) | ties if is_back else ties
    ahead = Q(**{f"sorted_by__{side}": value}) | Q(sorted_by=value, **{f"pk__{side}": pk})
    return ahead | Q(sorted_by__isnull=True) if key.is_nullable and not is_back else ahead


def _written(row: Any, name: str) -> str:
    value = row.sorted_by
    if isinstance(value, datetime):
        value = value.isoformat()
    text = json.dumps([name, value, row.pk], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(cursor: str, name: str, key: Key) -> tuple[Any, int]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        of, value, pk = json.loads(text)
        if key.is_time and value is not None:
            value = datetime.fromisoformat(value)
    except (binascii.Error, ValueError, TypeError) as error:
        raise BadCursor("This is no place in the list.") from error
    is_plain = isinstance(value, int | float | str | datetime | None)
    if of != name or type(pk) is not int or abs(pk) >= 2**63 or not is_plain:
        raise BadCursor("This place belongs to another order of the list.")
    return value, pk


def sort_in(text: str, keys: Mapping[str, Key], default: str) -> str:
    return text if text.removeprefix("-") in keys else default
