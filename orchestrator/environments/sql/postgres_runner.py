"""The process that runs an agent's SQL on PostgreSQL: `python -I postgres_runner.py`.

Speaks the protocol of `runner` and is as alone: it knows one address, that of a role which owns one
schema and nothing else. What the role may not do is the database's business; here time and memory
are limited. A role may lift its own `statement_timeout`, so whoever started this process ends it,
and the role's sessions, when it does not answer.

Several statements at a time are one transaction, as PostgreSQL has it.
"""

from __future__ import annotations

import datetime
import json
import os
import resource
import signal
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

NOBODY = 65534
ADDRESS_SPACE_BYTES = 768 * 2**20
"""A result is read as a whole: one that is larger ends the process."""
RESULT_ROWS = 1000
RESULT_BYTES = 1_000_000
STATE_ROWS = 20_000
STATE_BYTES = 8_000_000
GRACE_S = 2.0
"""From the database's limit to the kernel's."""


class Runner:
    """Answers requests; see `runner.Runner`."""

    def __init__(self) -> None:
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._schema = ""

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        op = request["op"]
        if op == "open":
            self._schema = request["schema"]
            self._connection = psycopg.connect(request["dsn"], autocommit=True, connect_timeout=10)
            # Only here: a socket in somebody's private folder is open to root alone.
            drop_root()
            self._set("search_path", self._schema)
            # An owner can hide rows from itself; whoever reads the state must not be misled.
            if request["is_verifier"]:
                self._set("row_security", "off")
            return {}
        assert self._connection is not None, "open first"
        self._set("statement_timeout", str(int(request["limit_s"] * 1000)))
        # Also where nobody is left to end this process.
        signal.setitimer(signal.ITIMER_REAL, request["limit_s"] + GRACE_S)
        try:
            return self._answer(self._connection, request)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _answer(
        self, connection: psycopg.Connection[tuple[Any, ...]], request: Mapping[str, Any]
    ) -> dict[str, Any]:
        op = request["op"]
        if op == "build":
            self._build(connection, request["scripts"], request["rows"])
            return {}
        if op == "run":
            results = run(connection, request["sql"])
            status = connection.info.transaction_status
            if status == TransactionStatus.ACTIVE:
                # The server waits for data that nobody will send or read.
                raise ValueError("COPY from and to the client is not available")
            return {"results": results, "in_transaction": status != TransactionStatus.IDLE}
        return self._snapshot(connection, request["names"])

    def _set(self, name: str, value: str) -> None:
        assert self._connection is not None
        if self._connection.info.transaction_status == TransactionStatus.INERROR:
            return
        self._connection.execute("SELECT set_config(%s, %s, false)", (name, value))

    def _build(
        self,
        connection: psycopg.Connection[tuple[Any, ...]],
        scripts: Sequence[str],
        rows: Mapping[str, Sequence[Any]],
    ) -> None:
        """The first script, the rows, the other scripts."""
        connection.execute(scripts[0].encode())
        with connection.transaction():
            connection.execute("SET CONSTRAINTS ALL DEFERRED")
            for table, listed in rows.items():
                for row in listed:
                    _insert(connection, table, row)
        for script in scripts[1:]:
            if script:
                connection.execute(script.encode())
        if connection.info.transaction_status != TransactionStatus.IDLE:
            raise ValueError("a transaction is left open: COMMIT is missing")

    def _snapshot(
        self, connection: psycopg.Connection[tuple[Any, ...]], names: Sequence[str] | None
    ) -> dict[str, Any]:
        found = connection.execute(
            "SELECT relname, relkind::text FROM pg_catalog.pg_class "
            "WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p', 'v', 'm') "
            "AND NOT relispartition",
            (self._schema,),
        )
        there = dict(found.fetchall())
        wanted = [n for n in sorted(there) if there[n] in "rp"] if names is None else names
        tables: dict[str, Any] = {}
        rows_left, bytes_left = STATE_ROWS, STATE_BYTES
        for name in wanted:
            if name not in there:
                continue
            query = sql.SQL("SELECT * FROM {} LIMIT %s").format(sql.Identifier(self._schema, name))
            cursor = connection.execute(query, (rows_left + 1,))
            rows, is_cut = fetch(cursor, rows_left, bytes_left)
            if is_cut:
                return {"is_too_big": True}
            rows_left -= len(rows)
            bytes_left -= sum(len(v) if isinstance(v, str) else 8 for row in rows for v in row)
            columns = [column.name for column in cursor.description or ()]
            tables[name] = {"columns": columns, "rows": rows}
        return {"tables": tables}


def run(connection: psycopg.Connection[tuple[Any, ...]], text: str) -> list[dict[str, Any]]:
    """The statements' results; only the error where one fails."""
    results: list[dict[str, Any]] = []
    try:
        cursor = connection.execute(text.encode())
        while True:
            results.append(_result(cursor))
            if not cursor.nextset():
                break
    except (psycopg.Error, ValueError) as exc:
        said = exc.diag.message_primary if isinstance(exc, psycopg.Error) else None
        results.append({"error": said or str(exc).strip()})
    return results


def _result(cursor: psycopg.Cursor[tuple[Any, ...]]) -> dict[str, Any]:
    if cursor.description is None:
        words = (cursor.statusmessage or "").split()
        is_count = bool(words) and words[0] in ("INSERT", "UPDATE", "DELETE", "MERGE")
        return {"changed": cursor.rowcount if is_count else -1}
    rows, is_cut = fetch(cursor, RESULT_ROWS, RESULT_BYTES)
    columns = [column.name for column in cursor.description]
    return {"columns": columns, "rows": rows, "is_cut": is_cut}


def fetch(
    cursor: psycopg.Cursor[tuple[Any, ...]], max_rows: int, max_bytes: int
) -> tuple[list[list[Any]], bool]:
    """Rows as JSON, and whether there are more than the limits allow."""
    rows: list[list[Any]] = []
    size = 0
    for row in cursor:
        if len(rows) >= max_rows or size > max_bytes:
            return rows, True
        rows.append([_cell(value) for value in row])
        size += sum(len(v) if isinstance(v, str) else 8 for v in rows[-1])
    return rows, size > max_bytes


def _cell(value: Any) -> Any:
    """JSON for a cell: numbers as numbers, times as ISO texts, everything else as text."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        is_whole = value.is_finite() and value == value.to_integral_value()
        return int(value) if is_whole else float(value)
    if isinstance(value, bytes | memoryview):
        return {"blob": bytes(value).hex()}
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list | dict):
        return json.dumps(value, default=str, sort_keys=True)
    return str(value)


def _insert(connection: psycopg.Connection[tuple[Any, ...]], table: str, row: Any) -> None:
    values = list(row.values()) if isinstance(row, dict) else list(row)
    values = [json.dumps(v) if isinstance(v, list | dict) else v for v in values]
    names: sql.Composable = sql.SQL("")
    if isinstance(row, dict):
        names = sql.SQL("({})").format(sql.SQL(", ").join(map(sql.Identifier, row)))
    marks = sql.SQL(", ").join(sql.Placeholder() * len(values))
    query = sql.SQL("INSERT INTO {} {} VALUES ({})")
    connection.execute(query.format(sql.Identifier(table), names, marks), values)


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def drop_root() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)


def main() -> None:
    limit()
    runner = Runner()
    for line in sys.stdin.buffer:
        try:
            reply = runner.answer(json.loads(line))
        except (psycopg.Error, ValueError) as exc:
            reply = {"failure": str(exc).strip() or type(exc).__name__}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
