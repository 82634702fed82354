"""A query on the tables of the environment's final state gives the expected rows.

The tables that the environment reports are loaded into a private SQLite database in memory. The
query may read only, and has a second.
"""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rubrics.errors import CriterionFailed
from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.types import Criterion, Scope, Transcript, Verdict

QUERY_S = 1.0
MAX_ROWS = 1000
_READING = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION,
                      sqlite3.SQLITE_RECURSIVE})  # fmt: skip

Row = tuple[Any, ...]


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    tables = transcript.state.get("tables")
    if not isinstance(tables, Mapping):
        raise CriterionFailed("the environment reports no tables of its final state")
    rows = _rows(tables, str(criterion.params["query"]))
    wanted = [tuple(row) for row in criterion.params["rows"]]
    if not KIND.param(criterion, "ordered"):
        rows, wanted = sorted(rows, key=_order), sorted(wanted, key=_order)
    good = len(rows) == len(wanted) and all(
        _same_row(a, b) for a, b in zip(rows, wanted, strict=True)
    )
    shown = json.dumps(rows[:3], ensure_ascii=False, default=str)[:300]
    reason = f"{len(rows)} rows, {len(wanted)} expected; the first: {shown}"
    return Verdict.scored(criterion, float(good), reason)


def _rows(tables: Mapping[str, Any], query: str) -> list[Row]:
    connection = sqlite3.connect(":memory:")
    try:
        for name, table in tables.items():
            _load(connection, str(name), table)
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY
        )
        deadline = time.monotonic() + QUERY_S
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        found = connection.execute(query).fetchmany(MAX_ROWS + 1)
    except sqlite3.Error as error:
        raise CriterionFailed(f"the query failed: {error} (it may read only, for 1 s)") from error
    finally:
        connection.close()
    if len(found) > MAX_ROWS:
        raise CriterionFailed(f"the query gives more than {MAX_ROWS} rows")
    return found


def _load(connection: sqlite3.Connection, name: str, table: Any) -> None:
    try:
        columns, rows = [str(c) for c in table["columns"]], table["rows"]
        names = ", ".join(_quoted(column) for column in columns)
        connection.execute(f"CREATE TABLE {_quoted(name)} ({names})")
        marks = ", ".join("?" for _ in columns)
        connection.executemany(
            f"INSERT INTO {_quoted(name)} VALUES ({marks})",
            [tuple(_plain(value) for value in row) for row in rows],
        )
    except (KeyError, TypeError, sqlite3.Error) as error:
        raise CriterionFailed(f"table {name} of the final state cannot be read: {error}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | None) else json.dumps(value)


def _same_row(a: Row, b: Row) -> bool:
    return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return bool(a == b)


def _order(row: Sequence[Any]) -> list[tuple[str, Any]]:
    """Numbers before texts, nothing first."""
    return [
        ("", 0) if v is None else ("a", v) if isinstance(v, int | float) else ("b", str(v))
        for v in row
    ]


def check(params: Mapping[str, Any]) -> list[str]:
    rows = params["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return ["params.rows: accepts a list of rows, each a list of values"]
    return []


KIND = Kind(
    name="state_query",
    about="A query on the final state gives the expected rows",
    decide=decide,
    params=(
        Param("query", ParamType.TEXT, "one SELECT, in SQLite's words", required=True),
        Param("rows", ParamType.JSON, "the rows that it must give", required=True),
        Param("ordered", ParamType.FLAG, "their order matters", default=False),
    ),
    scopes=(Scope.ENVIRONMENT_STATE,),
    check=check,
)
