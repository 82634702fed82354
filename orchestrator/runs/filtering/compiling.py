"""A tree of `grammar` as one condition of the database, or the place of what it cannot mean.

Each comparison is made two-valued: what is compared must be there. Then `not` is the complement on
both databases, whatever they hold of NULL.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import connection
from django.db.models import Exists, Expression, F, OuterRef, Q
from django.db.models.lookups import (
    Exact,
    GreaterThan,
    GreaterThanOrEqual,
    IContains,
    IExact,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from orchestrator.events.search import HoldsWords, streams_with
from orchestrator.runs.filtering.fields import OPERATORS_OF, Field, Nested, Schema
from orchestrator.runs.filtering.grammar import (
    And,
    Comparison,
    FilterError,
    Node,
    Not,
    Or,
    Value,
    Words,
)
from orchestrator.runs.filtering.json_path import JsonNumber, JsonText
from orchestrator.runs.models import Rollout, VerdictRecord

VERDICT_STATES = ("scored", "errored", "not_applicable", "pending")
_LARGEST_ID = 2**63 - 1
_ORDERED = {
    "=": Exact,
    "<": LessThan,
    "<=": LessThanOrEqual,
    ">": GreaterThan,
    ">=": GreaterThanOrEqual,
}
_AGO = re.compile(r"(\d{1,6})\s*(min|h|d|w)")
_UNITS = {
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_HASH = re.compile(r"(?:h_)?([0-9a-f]{1,64})", re.IGNORECASE)


def condition(
    node: Node | None,
    schema: Schema,
    *,
    project_id: int,
    now: datetime | None = None,
    is_common: bool = False,
) -> Q:
    """FilterError for a field that there is not, or a value that it cannot be compared with.

    `is_common`: many rows are found, and only some of them are read.
    """
    if node is None:
        return Q()
    return _Compiler(schema, project_id, now or datetime.now(UTC), is_common).of(node)


class _Compiler:
    def __init__(self, schema: Schema, project_id: int, now: datetime, is_common: bool) -> None:
        self._is_common = is_common
        self._schema = schema
        self._project_id = project_id
        self._now = now

    def of(self, node: Node) -> Q:
        if isinstance(node, And):
            return Q(*(self.of(part) for part in node.parts))
        if isinstance(node, Or):
            whole = Q()
            for part in node.parts:
                whole |= self.of(part)
            return whole
        if isinstance(node, Not):
            return ~self.of(node.part)
        if isinstance(node, Words):
            return self._words(node)
        return self._comparison(node)

    def _words(self, node: Words) -> Q:
        streams = streams_with(self._project_id, node.text)
        if streams is None:
            raise FilterError("There is no word to search for.", node.start, node.end)
        if self._schema.is_of_runs:
            return Q(pk__in=Rollout.objects.filter(stream_id__in=streams).values("run_id"))
        if self._is_common and connection.vendor == "sqlite":
            return Q(HoldsWords("stream_id", node.text))
        return Q(stream_id__in=streams)

    def _comparison(self, node: Comparison) -> Q:
        name, *rest = node.path
        if name == "verdict" and not self._schema.is_of_runs:
            return self._verdict(node)
        if nested := self._schema.nested.get(name):
            return self._nested(node, nested)
        field = self._schema.fields.get(name)
        if field is None or rest:
            raise self._unknown(node)
        _check_operator(node, field.kind, OPERATORS_OF[field.kind])
        place = F(field.place) if isinstance(field.place, str) else field.place
        return self._by_kind(node, field, place)

    def _by_kind(self, node: Comparison, field: Field, place: Any) -> Q:
        if field.kind == "text":
            return _text(node, place, is_nullable=False)
        if field.kind == "choice":
            return _any_of(node, [Q(Exact(place, _choice(value, field))) for value in node.values])
        if field.kind == "hash":
            return _any_of(node, [_hash(value, str(field.place)) for value in node.values])
        if field.kind == "time":
            return self._time(node, place)
        convert = _whole if field.kind == "id" else _number
        return _ordered(node, place, [convert(value) for value in node.values])

    def _time(self, node: Comparison, place: Any) -> Q:
        if not node.values:
            return _presence(node, place)
        value = node.values[0]
        start, end = _moment(value, self._now)
        is_there = Q(IsNull(place, False))
        if node.operator in ("=", "!="):
            inside = Q(GreaterThanOrEqual(place, start)) & Q(LessThan(place, end))
            return is_there & (inside if node.operator == "=" else ~inside)
        # A day is over at its end: after it means on the next, and up to it includes it.
        bound = end if node.operator in (">", "<=") and end > start else start
        lookup = {">": GreaterThanOrEqual, "<=": LessThan}.get(node.operator)
        if end == start or lookup is None:
            lookup = _ORDERED[node.operator]
        return is_there & Q(lookup(place, bound))

    def _nested(self, node: Comparison, nested: Nested) -> Q:
        if len(node.path) < 2:
            raise FilterError(
                f"{nested.name} needs a name behind a point, as in {nested.name}.temperature.",
                node.start,
                node.end,
            )
        path = node.path[1:]
        if not node.values:
            return _presence(node, JsonText(nested.place, path))
        is_number = all(not v.is_quoted and _as_number(v.text) is not None for v in node.values)
        if is_number and node.operator not in ("~", "!~"):
            numbers = [_number(value) for value in node.values]
            return _ordered(node, JsonNumber(nested.place, path), numbers)
        _check_operator(node, "a text", OPERATORS_OF["text"])
        return _text(node, JsonText(nested.place, path), is_nullable=True)

    def _verdict(self, node: Comparison) -> Q:
        if len(node.path) < 2:
            raise FilterError(
                "verdict needs a criterion behind a point, as in verdict.correct < 1.",
                node.start,
                node.end,
            )
        rows = VerdictRecord.objects.filter(criterion=".".join(node.path[1:]))
        if not node.values:
            found = Exists(rows.filter(rollout=OuterRef("pk")))
            return Q(found) if node.operator == "not empty" else ~Q(found)
        _check_operator(node, "a verdict", OPERATORS_OF["number"])
        states = [value for value in node.values if value.text.lower() in VERDICT_STATES]
        if states and len(states) == len(node.values):
            _check_operator(node, "the state of a verdict", OPERATORS_OF["choice"])
            matches = Q(state__in=[value.text.lower() for value in states])
            if node.operator in ("!=", "not in"):
                matches = ~matches
        else:
            numbers = [_number(value, VERDICT_STATES) for value in node.values]
            matches = Q(state="scored") & _ordered(node, F("value"), numbers)
        return Q(pk__in=rows.filter(matches).values("rollout_id"))

    def _unknown(self, node: Comparison) -> FilterError:
        name = ".".join(node.path)
        known = [*self._schema.fields, *self._schema.nested]
        known += [] if self._schema.is_of_runs else ["verdict"]
        near = difflib.get_close_matches(node.path[0], known, n=1)
        hint = f" Did you mean {near[0]}?" if near and near[0] != node.path[0] else ""
        if len(node.path) > 1 and node.path[0] in self._schema.fields:
            hint = f" {node.path[0]} has no parts."
        return FilterError(
            f"There is no field «{name}».{hint} To search for the words, quote them.",
            node.start,
            node.end,
        )


def _check_operator(node: Comparison, kind: str, allowed: Iterable[str]) -> None:
    if node.operator in allowed:
        return
    written = f"is {node.operator}" if "empty" in node.operator else node.operator
    words = {"id": "a number", "number": "a number", "choice": "a choice", "time": "a time"}
    raise FilterError(
        f"{'.'.join(node.path)} is {words.get(kind, kind)}: it knows no {written},"
        f" but {', '.join('is ' + each if 'empty' in each else each for each in allowed)}.",
        node.start,
        node.end,
    )


def _any_of(node: Comparison, each: list[Q]) -> Q:
    whole = each[0]
    for one in each[1:]:
        whole |= one
    return ~whole if node.operator in ("!=", "not in") else whole


def _presence(node: Comparison, place: Any) -> Q:
    return Q(IsNull(place, node.operator == "empty"))


def _ordered(node: Comparison, place: Expression | F, numbers: list[float]) -> Q:
    if not node.values:
        return _presence(node, place)
    is_there = Q(IsNull(place, False))
    if node.operator in ("in", "not in", "=", "!="):
        return is_there & _any_of(node, [Q(Exact(place, number)) for number in numbers])
    return is_there & Q(_ORDERED[node.operator](place, numbers[0]))


def _text(node: Comparison, place: Expression | F, *, is_nullable: bool) -> Q:
    """Case does not matter; empty is no text at all."""
    if not node.values:
        is_empty = Q(Exact(place, ""))
        if is_nullable:
            is_empty |= Q(IsNull(place, True))
        return is_empty if node.operator == "empty" else ~is_empty
    lookup = IContains if node.operator in ("~", "!~") else IExact
    matches = Q(lookup(place, node.values[0].text))
    for value in node.values[1:]:
        matches |= Q(lookup(place, value.text))
    if node.operator in ("!=", "!~", "not in"):
        matches = ~matches
    return matches & Q(IsNull(place, False)) if is_nullable else matches


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) and "_" not in text else None


def _number(value: Value, words: Iterable[str] = ()) -> float:
    number = _as_number(value.text)
    if number is None:
        or_words = f", or {', '.join(words)}" if words else ""
        raise FilterError(f"«{value.text}» is no number{or_words}.", value.start, value.end)
    return number


def _whole(value: Value) -> int:
    if not re.fullmatch(r"\d{1,19}", value.text) or int(value.text) > _LARGEST_ID:
        raise FilterError(f"«{value.text}» is no whole number.", value.start, value.end)
    return int(value.text)


def _choice(value: Value, field: Field) -> str:
    wanted = value.text.lower().replace(" ", "_").replace("-", "_")
    for name, words in field.choices:
        if wanted in (name, words.lower().replace(" ", "_")):
            return name
    names = [name for name, _ in field.choices]
    near = difflib.get_close_matches(wanted, names, n=1)
    raise FilterError(
        f"«{value.text}» is no {field.name}."
        + (f" Did you mean {near[0]}?" if near else "")
        + f" There are {', '.join(names)}.",
        value.start,
        value.end,
    )


def _hash(value: Value, place: str) -> Q:
    match = _HASH.fullmatch(value.text)
    if match is None:
        raise FilterError(
            f"«{value.text}» is no hash: it has digits and the letters a to f, as h_3fa.",
            value.start,
            value.end,
        )
    return Q(**{f"{place}__startswith": match[1].lower()})


def _moment(value: Value, now: datetime) -> tuple[datetime, datetime]:
    """The span that a time names: a day, a minute, or an instant; UTC unless it says otherwise."""
    text = value.text.strip()
    ago = _AGO.fullmatch(text.lower().removesuffix("ago").strip().removeprefix("-"))
    try:
        if ago:
            moment = now - int(ago[1]) * _UNITS[ago[2]]
            return moment, moment
        if text.lower() in ("today", "yesterday"):
            day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
            day -= timedelta(days=text.lower() == "yesterday")
            return day, day + timedelta(days=1)
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        if re.fullmatch(r"[\d-]+", text):
            return moment, moment + timedelta(days=1)
        if re.fullmatch(r"[\d-]+[T ]\d\d:\d\d", text):
            return moment, moment + timedelta(minutes=1)
    except (ValueError, OverflowError):
        raise FilterError(
            f'«{value.text}» is no time: write 2026-11-30, "2026-11-30 14:05", 2h or 7d ago.',
            value.start,
            value.end,
        ) from None
    return moment, moment
