"""Exercises on a database: what it holds, and what makes an attempt right.

`schema` (SQL that makes the tables) and `rows` (by table, or SQL) say what an agent meets. Right is
what the author says by at least one of

- `solution`: SQL; the state that it leaves is the expected one;
- `checks`: queries with the rows that they must give on the final state;
- `answer_query`: a question; the rows of this query, asked of the database as it is at first, are
  what the agent must answer. Then the database must stay as it was, unless a solution or checks say
  otherwise.

Everything but key, prompt and schema stays in the environment's server.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

MAX_STEPS = 8
MAX_ROWS = 10_000
DEFAULT_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Check:
    """A query on the final state and the rows that it must give."""

    sql: str
    rows: tuple[tuple[Any, ...], ...]
    is_ordered: bool = False

    @classmethod
    def from_json(cls, record: Any) -> Check:
        if not isinstance(record, Mapping) or set(record) - {"sql", "rows", "ordered"}:
            raise ValueError('checks: accepts a list of {"sql": …, "rows": [[…]], "ordered": …}')
        rows = record.get("rows")
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise ValueError("checks: rows accepts a list of rows, each a list of values")
        return cls(
            sql=_sql(record.get("sql"), "checks"),
            rows=tuple(tuple(row) for row in rows),
            is_ordered=bool(record.get("ordered", False)),
        )

    def as_json(self) -> dict[str, Any]:
        return {"sql": self.sql, "rows": [list(r) for r in self.rows], "ordered": self.is_ordered}


@dataclass(frozen=True)
class SqlTask:
    key: str
    prompt: str
    schema: str = ""
    """May be empty where the environment's source has one for all tasks."""
    rows: Mapping[str, list[Any]] = field(default_factory=dict)
    """By table: each row a list in the order of the columns, or a map from column to value."""
    rows_sql: str = ""
    """INSERTs beside `rows`; executed after them."""
    solution: str = ""
    checks: tuple[Check, ...] = ()
    answer_query: str = ""
    ordered: bool = False
    """Of the answer: whether the order of its rows counts."""
    tables: tuple[str, ...] = ()
    """Which tables (or views) are compared with the solution's state; empty: all tables."""
    ignore_columns: tuple[str, ...] = ()
    """`table.column`, not compared."""
    tolerance: float = DEFAULT_TOLERANCE
    """Greatest difference of numbers."""
    partial: bool = False
    """The share of the wanted change as reward, instead of all or nothing."""
    max_steps: int = MAX_STEPS
    """Actions; after that the state is graded as it is."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> SqlTask:
        """`ValueError` names the field and the fix."""
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(record) - known):
            raise ValueError(f"{unknown[0]}: unknown; accepts {', '.join(sorted(known))}")
        given = {name: value for name, value in record.items() if value not in (None, "")}
        checks = given.get("checks", [])
        if not isinstance(checks, list | tuple):
            raise ValueError("checks: accepts a list")
        task = cls(
            key=str(given.get("key", "")),
            prompt=str(given.get("prompt", "")),
            schema=_sql(given.get("schema", ""), "schema", may_be_empty=True),
            rows=rows_of_tables(given.get("rows", {})),
            rows_sql=_sql(given.get("rows_sql", ""), "rows_sql", may_be_empty=True),
            solution=_sql(given.get("solution", ""), "solution", may_be_empty=True),
            checks=tuple(Check.from_json(item) for item in checks),
            answer_query=_sql(given.get("answer_query", ""), "answer_query", may_be_empty=True),
            ordered=_flag(given.get("ordered", False), "ordered"),
            tables=_texts(given.get("tables", []), "tables"),
            ignore_columns=_texts(given.get("ignore_columns", []), "ignore_columns"),
            tolerance=_size(given.get("tolerance", DEFAULT_TOLERANCE), "tolerance"),
            partial=_flag(given.get("partial", False), "partial"),
            max_steps=_count(given.get("max_steps", MAX_STEPS), "max_steps"),
        )
        if not (task.solution or task.checks or task.answer_query):
            raise ValueError("solution: give a solution, checks or an answer_query")
        if bad := [name for name in task.ignore_columns if name.count(".") != 1]:
            raise ValueError(f"ignore_columns: {bad[0]!r}; accepts table.column")
        return task

    def as_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            **values,
            "rows": dict(self.rows),
            "checks": [check.as_json() for check in self.checks],
            "tables": list(self.tables),
            "ignore_columns": list(self.ignore_columns),
        }


def rows_of_tables(value: Any) -> dict[str, list[Any]]:
    """Rows by table. `ValueError` names the table and the row."""
    if not isinstance(value, Mapping):
        raise ValueError('rows: accepts {"table": [[…], …]} or {"table": [{"column": …}, …]}')
    for table, listed in value.items():
        if not isinstance(listed, list):
            raise ValueError(f"rows: {table}: accepts a list of rows")
        for number, row in enumerate(listed, start=1):
            if not isinstance(row, list | dict) or not row:
                raise ValueError(f"rows: {table}, row {number}: accepts a list or an object")
    if (count := sum(len(listed) for listed in value.values())) > MAX_ROWS:
        raise ValueError(f"rows: {count} rows; accepts at most {MAX_ROWS}")
    return {str(table): list(listed) for table, listed in value.items()}


def _sql(value: Any, name: str, *, may_be_empty: bool = False) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{name}: accepts SQL as text")
    if not value.strip() and not may_be_empty:
        raise ValueError(f"{name}: is empty; accepts SQL")
    return value.strip()


def _texts(value: Any, name: str) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple) or not all(isinstance(item, str) for item in listed):
        raise ValueError(f"{name}: accepts a list of texts")
    return tuple(listed)


def _flag(value: Any, name: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name}: {str(value)[:40]!r}; accepts true or false")
    return value


def _size(value: Any, name: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: {str(value)[:40]!r}; accepts a number from 0")
    return float(value)


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1000:
        raise ValueError(f"{name}: {str(value)[:40]!r}; accepts a whole number from 1 to 1000")
    return value
