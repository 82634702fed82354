"""The process that runs an agent's SQL on one SQLite file: `python -I -S runner.py`.

Reads one JSON request a line and answers each with one line. It imports the standard library alone,
knows no path but the one that it is given, drops root's rights before it reads anything, and dies
with whoever started it: end of file on its input, or a timer that the kernel keeps.

What holds a statement:

- an authorizer refuses other files (ATTACH, VACUUM INTO), PRAGMAs that change something, virtual
  tables and `load_extension`;
- a progress handler ends it after its time; where one operation takes longer than that, the timer
  kills the process, and an open transaction is rolled back when the file is opened again;
- SQLite's own limits: memory, length of a value, pages of the file, depth and size of a statement;
- the kernel's limits on memory, files and file size, for what the others miss.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator
from typing import Any

NOBODY = 65534
HEAP_BYTES = 64 * 2**20
ADDRESS_SPACE_BYTES = 512 * 2**20
FILE_BYTES = 32 * 2**20
VALUE_BYTES = 1_000_000
RESULT_ROWS = 1000
RESULT_BYTES = 1_000_000
STATE_ROWS = 20_000
STATE_BYTES = 8_000_000
MAX_STATEMENTS = 50
BUILD_S = 10.0
GRACE_S = 1.0
"""From the progress handler's limit to the kernel's."""

_LIMITS = (
    (sqlite3.SQLITE_LIMIT_LENGTH, VALUE_BYTES),
    (sqlite3.SQLITE_LIMIT_SQL_LENGTH, VALUE_BYTES),
    (sqlite3.SQLITE_LIMIT_COLUMN, 200),
    (sqlite3.SQLITE_LIMIT_EXPR_DEPTH, 100),
    (sqlite3.SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (sqlite3.SQLITE_LIMIT_VDBE_OP, 250_000),
    (sqlite3.SQLITE_LIMIT_FUNCTION_ARG, 50),
    (sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
    (sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH, 20),
    (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
    (sqlite3.SQLITE_LIMIT_WORKER_THREADS, 0),
)
_READING_PRAGMAS = frozenset(
    (
        *("table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo"),
        *("foreign_key_list", "foreign_key_check", "database_list"),
    )
)
_REFUSED_FUNCTIONS = frozenset(
    ("load_extension", "readfile", "writefile", "edit", "fts3_tokenizer")
)
_REFUSED_ACTIONS = frozenset(
    (
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_DETACH,
        sqlite3.SQLITE_CREATE_VTABLE,
        sqlite3.SQLITE_DROP_VTABLE,
    )
)


def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
    if action in _REFUSED_ACTIONS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_PRAGMA and (first or "").lower() not in _READING_PRAGMAS:
        return sqlite3.SQLITE_DENY
    if action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in _REFUSED_FUNCTIONS:
        return sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK


def connect(path: str) -> sqlite3.Connection:
    """A connection within the limits; makes the file where there is none."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.text_factory = _text
    for name, value in _LIMITS:
        connection.setlimit(name, value)
    page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
    for pragma in (
        f"hard_heap_limit = {HEAP_BYTES}",
        f"max_page_count = {FILE_BYTES // page_bytes}",
        "temp_store = MEMORY",
        "trusted_schema = OFF",
        "foreign_keys = ON",
        # A kill must not harm the file; a power cut may.
        "synchronous = OFF",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.set_authorizer(authorize)
    return connection


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


@contextlib.contextmanager
def time_limit(connection: sqlite3.Connection, limit_s: float) -> Iterator[None]:
    deadline = time.monotonic() + limit_s
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 2000)
    signal.setitimer(signal.ITIMER_REAL, limit_s + GRACE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.set_progress_handler(None, 0)


def statements(sql: str) -> Iterator[str]:
    """The single statements of a script; semicolons in texts and triggers do not end one."""
    start = 0
    for end, character in enumerate(sql, start=1):
        if character == ";" and sqlite3.complete_statement(sql[start:end]):
            yield sql[start:end]
            start = end
    if sql[start:].strip():
        yield sql[start:]


def run(connection: sqlite3.Connection, sql: str, limit_s: float) -> list[dict[str, Any]]:
    """Each statement's result, up to the first that fails."""
    results: list[dict[str, Any]] = []
    for statement in statements(sql):
        if len(results) >= MAX_STATEMENTS:
            results.append({"error": f"more than {MAX_STATEMENTS} statements at a time"})
            break
        try:
            results.append(_one(connection, statement))
        except (sqlite3.Error, sqlite3.Warning, ValueError, OverflowError) as exc:
            is_late = str(exc) == "interrupted"
            results.append({"error": f"ended after {limit_s:g} s" if is_late else str(exc)})
            break
        except MemoryError:
            results.append({"error": f"out of memory (limit {HEAP_BYTES // 2**20} MiB)"})
            break
    return results


def _one(connection: sqlite3.Connection, statement: str) -> dict[str, Any]:
    with contextlib.closing(connection.execute(statement)) as cursor:
        if cursor.description is None:
            return {"changed": cursor.rowcount}
        columns = [name for name, *_ in cursor.description]
        rows, is_cut = fetch(cursor, RESULT_ROWS, RESULT_BYTES)
        return {"columns": columns, "rows": rows, "is_cut": is_cut}


def fetch(cursor: sqlite3.Cursor, max_rows: int, max_bytes: int) -> tuple[list[list[Any]], bool]:
    """Rows as JSON, and whether there are more than the limits allow."""
    rows: list[list[Any]] = []
    size = 0
    for row in cursor:
        if len(rows) >= max_rows or size > max_bytes:
            return rows, True
        rows.append([_cell(value) for value in row])
        size += sum(len(v) if isinstance(v, str | bytes) else 8 for v in row)
    return rows, size > max_bytes


def _cell(value: Any) -> Any:
    return {"blob": value.hex()} if isinstance(value, bytes) else value


def snapshot(connection: sqlite3.Connection, names: list[str] | None) -> dict[str, Any]:
    """All tables, or those named (views too), with their columns and rows."""
    found = connection.execute(
        "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') "
        "AND name NOT LIKE 'sqlite@_%' ESCAPE '@' ORDER BY name"
    )
    there: dict[str, str] = dict(found.fetchall())
    wanted = [name for name in there if there[name] == "table"] if names is None else names
    tables: dict[str, Any] = {}
    rows_left, bytes_left = STATE_ROWS, STATE_BYTES
    for name in wanted:
        if name not in there:
            continue
        quoted = '"' + name.replace('"', '""') + '"'
        cursor = connection.execute(f"SELECT * FROM {quoted}")
        rows, is_cut = fetch(cursor, rows_left, bytes_left)
        if is_cut:
            return {"is_too_big": True}
        rows_left -= len(rows)
        bytes_left -= sum(len(v) if isinstance(v, str) else 8 for row in rows for v in row)
        tables[name] = {"columns": [column for column, *_ in cursor.description], "rows": rows}
    return {"tables": tables}


def build(path: str, scripts: list[str], rows: dict[str, list[Any]]) -> dict[str, Any]:
    """A new file: the first script, the rows, the other scripts. Raises what SQLite raises."""
    with contextlib.closing(connect(path)) as connection:
        with time_limit(connection, BUILD_S):
            _script(connection, scripts[0])
            connection.execute("BEGIN")
            connection.set_authorizer(None)
            # Tables may be filled in any order.
            connection.execute("PRAGMA defer_foreign_keys = ON")
            connection.set_authorizer(authorize)
            for table, listed in rows.items():
                for row in listed:
                    _insert(connection, table, row)
            connection.execute("COMMIT")
            for script in scripts[1:]:
                _script(connection, script)
            if connection.in_transaction:
                raise ValueError("a transaction is left open: COMMIT is missing")
        return {"schema": schema(connection)}


def _script(connection: sqlite3.Connection, script: str) -> None:
    for statement in statements(script):
        connection.execute(statement).fetchall()


def _insert(connection: sqlite3.Connection, table: str, row: Any) -> None:
    names = ""
    if isinstance(row, dict):
        names = "(" + ", ".join(_quoted(name) for name in row) + ")"
        row = list(row.values())
    values = [v if isinstance(v, str | int | float) or v is None else json.dumps(v) for v in row]
    marks = ", ".join("?" * len(values))
    connection.execute(f"INSERT INTO {_quoted(table)} {names} VALUES ({marks})", values)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def schema(connection: sqlite3.Connection) -> str:
    rows = connection.execute(
        "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite@_%' "
        "ESCAPE '@' ORDER BY rowid"
    )
    return "\n".join(f"{sql};" for (sql,) in rows)


class Runner:
    """Answers requests; see `main`."""

    def __init__(self) -> None:
        self._connection: sqlite3.Connection | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        op = request["op"]
        if op == "build":
            return build(request["path"], request["scripts"], request["rows"])
        if op == "open":
            if self._connection is not None:
                self._connection.close()
            self._connection = connect(request["path"])
            return {}
        assert self._connection is not None, "open first"
        with time_limit(self._connection, request["limit_s"]):
            if op == "run":
                results = run(self._connection, request["sql"], request["limit_s"])
                return {"results": results, "in_transaction": self._connection.in_transaction}
            return snapshot(self._connection, request["names"])


def confine() -> None:
    """Limits of the process, and no rights of root."""
    for kind, limit in (
        (resource.RLIMIT_AS, ADDRESS_SPACE_BYTES),
        (resource.RLIMIT_FSIZE, 2 * FILE_BYTES),
        (resource.RLIMIT_NOFILE, 32),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (limit, limit))
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    # Files above the limit give an error instead of ending the process.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def main() -> None:
    confine()
    runner = Runner()
    for line in sys.stdin.buffer:
        try:
            reply = runner.answer(json.loads(line))
        except (sqlite3.Error, sqlite3.Warning, MemoryError, ValueError, OverflowError) as exc:
            reply = {"failure": str(exc) or type(exc).__name__}
        sys.stdout.write(json.dumps(reply) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
