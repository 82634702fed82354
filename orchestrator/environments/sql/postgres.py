"""PostgreSQL: for each episode a schema, and a role that owns it and nothing else.

The address that the operator gives must be of a role that may create roles (CREATEROLE, or a
superuser) and schemas in its database. Agents and authors never act as that role: their statements
run in a process of their own (`postgres_runner`) as the episode's role, whose password is drawn for
it. When the agent is done its sessions are ended, its password is drawn again and what it set for
itself is forgotten, before anything is read.

A role cannot read other schemas' rows, other databases' tables or the server's files, nor run
programs; it can fill the disk. Hence a server of its own is the right place.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from orchestrator.environments.sql.child import Child, RunnerGoneError, SqlError
from orchestrator.environments.sql.engine import (
    SNAPSHOT_S,
    STATEMENT_S,
    Prepared,
    Reply,
    TaskBrokenError,
    VerdictError,
)
from orchestrator.environments.sql.state import Row, State, rows_of, state_of
from orchestrator.environments.sql.tasks import SqlTask

_COMMAND = (sys.executable, "-I", str(Path(__file__).with_name("postgres_runner.py")))
_BUILD_S = 10.0
_OPEN_S = 20.0
_SLACK_S = 5.0
_Admin = psycopg.Connection[tuple[Any, ...]]
_ENDED = re.compile(r"sb_([0-9a-f]{8})_(\d+)_[0-9a-f]{12}")


class PostgresEngine:
    """See `engine.Engine`. `ValueError` where the address does not do."""

    def __init__(self, dsn: str, *, statement_s: float = STATEMENT_S) -> None:
        if not dsn:
            raise ValueError("SQL_DSN: the address of PostgreSQL is missing")
        self._dsn = dsn
        self.statement_s = statement_s
        self._lock = threading.Lock()
        """Of the connection's replacement; statements on it wait for each other by themselves."""
        self._admin: _Admin | None = None
        self._sweep()

    @property
    def admin(self) -> _Admin:
        """The operator's connection; another one where the server has gone away meanwhile."""
        with self._lock:
            if self._admin is None or self._admin.closed:
                try:
                    self._admin = psycopg.connect(self._dsn, autocommit=True, connect_timeout=10)
                except psycopg.Error as exc:
                    # Its message may repeat the address, which holds a password.
                    raise ValueError(f"PostgreSQL does not answer ({type(exc).__name__})") from None
            return self._admin

    def prepare(self, task: SqlTask) -> Prepared:
        initial, schema = self._built(task, solution=""), task.schema
        try:
            answer = None
            if task.answer_query:
                answer = initial.rows(task.answer_query, must_run=True)
            state = initial.state(task.tables or None)
        except (SqlError, VerdictError) as exc:
            raise TaskBrokenError(f"task {task.key}: answer_query: {exc}") from exc
        finally:
            initial.close()
        expected = None
        if task.solution:
            solved = self._built(task, solution=task.solution)
            try:
                expected = solved.state(task.tables or None)
            finally:
                solved.close()
        if state is None or (task.solution and expected is None):
            raise TaskBrokenError(f"task {task.key}: too many rows to compare")
        if task.answer_query and answer is None:
            raise TaskBrokenError(f"task {task.key}: answer_query gives no rows, or too many")
        return Prepared(task, schema, state, expected, answer)

    def open(self, prepared: Prepared) -> PostgresDatabase:
        return self._built(prepared.task, solution="")

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()

    def _built(self, task: SqlTask, *, solution: str) -> PostgresDatabase:
        """A fresh database with the task's rows, and what `solution` made of them."""
        database = PostgresDatabase(self, self._dsn)
        try:
            database.build([task.schema, task.rows_sql], task)
            if solution:
                database.build([solution], None)
            database.leave()
        except (SqlError, RunnerGoneError) as exc:
            database.close()
            what = "solution" if solution else "schema or rows"
            raise TaskBrokenError(f"task {task.key}: {what}: {exc}") from exc
        return database

    def _sweep(self) -> None:
        """Remove what servers of this machine left that were killed."""
        roles = self.admin.execute("SELECT rolname FROM pg_roles").fetchall()
        for (role,) in roles:
            match = _ENDED.fullmatch(role)
            if match and match[1] == _host() and not Path("/proc", match[2]).exists():
                drop(self.admin, role)


class PostgresDatabase:
    """See `engine.Database`."""

    def __init__(self, engine: PostgresEngine, dsn: str) -> None:
        self._engine = engine
        self._dsn = dsn
        self._role = f"sb_{_host()}_{os.getpid()}_{secrets.token_hex(6)}"
        self._password = secrets.token_urlsafe(24)
        self._child: Child | None = None
        self._is_there = True
        create(engine.admin, self._role, self._password)

    def build(self, scripts: Sequence[str], task: SqlTask | None) -> None:
        rows = dict(task.rows) if task is not None else {}
        request = {"op": "build", "scripts": list(scripts), "rows": rows, "limit_s": _BUILD_S}
        self._running().ask(request, within_s=_BUILD_S + _SLACK_S)

    def run(self, sql: str) -> Reply:
        limit_s = self._engine.statement_s
        try:
            reply = self._running().ask(
                {"op": "run", "sql": sql, "limit_s": limit_s}, within_s=limit_s + _SLACK_S
            )
        except RunnerGoneError as exc:
            self._end_sessions()
            return Reply(results=(), ended=str(exc))
        except SqlError as exc:
            # The connection itself is lost: the next statement gets another.
            self._end_sessions()
            return Reply(results=(), ended=str(exc))
        return Reply(reply["results"], reply["in_transaction"])

    def leave(self) -> None:
        """Also before an agent begins: it starts from a session that nobody used."""
        self._end_sessions()

    def state(self, names: Sequence[str] | None) -> State | None:
        request = {"op": "snapshot", "names": None if names is None else list(names)}
        try:
            reply = self._verifying().ask(
                {**request, "limit_s": SNAPSHOT_S}, within_s=SNAPSHOT_S + _SLACK_S
            )
        except (RunnerGoneError, SqlError) as exc:
            raise VerdictError(f"the final state could not be read: {exc}") from exc
        return None if reply.get("is_too_big") else state_of(reply["tables"])

    def rows(self, sql: str, *, must_run: bool = False) -> tuple[Row, ...] | None:
        request = {"op": "run", "sql": sql, "limit_s": STATEMENT_S}
        try:
            reply = self._verifying().ask(request, within_s=STATEMENT_S + _SLACK_S)
            results: list[dict[str, Any]] = reply["results"]
            if errors := [result["error"] for result in results if "error" in result]:
                raise SqlError(errors[0])
        except (RunnerGoneError, SqlError) as exc:
            if must_run:
                raise SqlError(str(exc)) from exc
            self._end_sessions()
            return None
        last = next((result for result in reversed(results) if "rows" in result), None)
        return None if last is None or last["is_cut"] else rows_of(last["rows"])

    def close(self) -> None:
        self._end_sessions()
        if self._is_there:
            self._is_there = False
            drop(self._engine.admin, self._role)

    def _running(self, *, is_verifier: bool = False) -> Child:
        if self._child is None:
            self._child = Child(_COMMAND)
            dsn = make_conninfo(self._dsn, user=self._role, password=self._password)
            request = {"op": "open", "dsn": dsn, "schema": self._role, "is_verifier": is_verifier}
            self._child.ask(request, within_s=_OPEN_S)
        return self._child

    def _verifying(self) -> Child:
        if self._child is None:
            self._password = secrets.token_urlsafe(24)
            renew(self._engine.admin, self._role, self._password)
        return self._running(is_verifier=True)

    def _end_sessions(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.stop()
        end_sessions(self._engine.admin, self._role)


# --- as the operator's role ----------------------------------------------------------------------


def create(admin: _Admin, role: str, password: str) -> None:
    name = sql.Identifier(role)
    make = sql.SQL("CREATE ROLE {} LOGIN NOINHERIT CONNECTION LIMIT 2 PASSWORD {}")
    admin.execute(make.format(name, sql.Literal(password)))
    # Who is no superuser must be a member of the role to give it a schema and to clear up after it.
    admin.execute(sql.SQL("GRANT {} TO CURRENT_USER").format(name))
    admin.execute(sql.SQL("CREATE SCHEMA {} AUTHORIZATION {}").format(name, name))


def renew(admin: _Admin, role: str, password: str) -> None:
    """Forget what a role has set for itself."""
    name = sql.Identifier(role)
    admin.execute(sql.SQL("ALTER ROLE {} RESET ALL").format(name))
    admin.execute(sql.SQL("ALTER ROLE {} PASSWORD {}").format(name, sql.Literal(password)))


def end_sessions(admin: _Admin, role: str) -> None:
    """Waits up to five seconds for each to be gone: until then it holds locks."""
    with contextlib.suppress(psycopg.OperationalError):  # the server is going down
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE usename = %s",
            (role,),
        )


def drop(admin: _Admin, role: str) -> None:
    end_sessions(admin, role)
    name = sql.Identifier(role)
    with contextlib.suppress(psycopg.OperationalError):
        admin.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(name))
        admin.execute(sql.SQL("DROP ROLE {}").format(name))


def _host() -> str:
    return sha256(socket.gethostname().encode()).hexdigest()[:8]
