"""SQLite: a file for each task, copied for each episode, opened by a runner process alone."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.environments.sandbox import NOBODY, private_root, remove_folder
from orchestrator.environments.sql import runner
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

_COMMAND = (sys.executable, "-I", "-S", str(Path(runner.__file__).resolve()))
_OPEN_S = 10.0
_SLACK_S = 5.0
"""Beyond the runner's own limits: a loaded machine."""


class SqliteEngine:
    def __init__(self, base: Path | None = None, *, statement_s: float = STATEMENT_S) -> None:
        self._root = private_root(base)
        self._statement_s = statement_s

    def prepare(self, task: SqlTask) -> Prepared:
        folder = _folder(self._root)
        child = Child(_COMMAND)
        given = [task.schema, task.rows_sql]
        try:
            schema = _built(child, task, folder / "initial", given, "rows")
            initial = _state(child, folder / "initial", task.tables or None)
            expected = None
            if task.solution:
                _built(child, task, folder / "expected", [*given, task.solution], "solution")
                expected = _state(child, folder / "expected", task.tables or None)
                (folder / "expected").unlink()
            if initial is None or (task.solution and expected is None):
                raise TaskBrokenError(
                    f"task {task.key}: more than {runner.STATE_ROWS} rows or "
                    f"{runner.STATE_BYTES // 10**6} MB; too much to compare"
                )
            answer = _answer(child, task, folder / "initial")
        except RunnerGoneError as exc:
            raise TaskBrokenError(f"task {task.key}: its SQL was ended: {exc}") from exc
        finally:
            child.stop()
        template = self._template(task)
        if template.exists():
            remove_folder(template)
        folder.rename(template)
        return Prepared(task, schema, initial, expected, answer)

    def open(self, prepared: Prepared) -> SqliteDatabase:
        folder = _folder(self._root)
        path = folder / "database"
        shutil.copyfile(self._template(prepared.task) / "initial", path)
        _hand_over(path)
        return SqliteDatabase(path, self._statement_s)

    def close(self) -> None:
        remove_folder(self._root)

    def _template(self, task: SqlTask) -> Path:
        return self._root / f"task-{task.key.encode().hex()}"


class SqliteDatabase:
    """See `engine.Database`."""

    def __init__(self, path: Path, statement_s: float) -> None:
        self._path = path
        self._statement_s = statement_s
        self._child: Child | None = None

    def run(self, sql: str) -> Reply:
        try:
            child = self._running()
            reply = child.ask(
                {"op": "run", "sql": sql, "limit_s": self._statement_s},
                within_s=self._statement_s + runner.GRACE_S + _SLACK_S,
            )
        except RunnerGoneError as exc:
            self.leave()
            return Reply(results=(), ended=str(exc))
        return Reply(reply["results"], reply["in_transaction"])

    def leave(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.stop()

    def state(self, names: Sequence[str] | None) -> State | None:
        try:
            return _state(self._running(), self._path, names)
        except (RunnerGoneError, SqlError) as exc:
            raise VerdictError(f"the final state could not be read: {exc}") from exc

    def rows(self, sql: str) -> tuple[Row, ...] | None:
        try:
            return _rows(self._running(), sql)
        except (RunnerGoneError, SqlError):
            self.leave()
            return None

    def close(self) -> None:
        self.leave()
        remove_folder(self._path.parent)

    def _running(self) -> Child:
        if self._child is None:
            self._child = Child(_COMMAND)
            self._child.ask({"op": "open", "path": str(self._path)}, within_s=_OPEN_S)
        return self._child


def _built(child: Child, task: SqlTask, path: Path, scripts: list[str], what: str) -> str:
    request = {"op": "build", "path": str(path), "scripts": scripts, "rows": dict(task.rows)}
    try:
        return str(child.ask(request, within_s=runner.BUILD_S + _SLACK_S)["schema"])
    except SqlError as exc:
        raise TaskBrokenError(f"task {task.key}: schema, rows or {what}: {exc}") from exc


def _state(child: Child, path: Path, names: Sequence[str] | None) -> State | None:
    child.ask({"op": "open", "path": str(path)}, within_s=_OPEN_S)
    request = {"op": "snapshot", "names": None if names is None else list(names)}
    reply = child.ask({**request, "limit_s": SNAPSHOT_S}, within_s=SNAPSHOT_S + _SLACK_S)
    return None if reply.get("is_too_big") else state_of(reply["tables"])


def _rows(child: Child, sql: str) -> tuple[Row, ...] | None:
    request = {"op": "run", "sql": sql, "limit_s": STATEMENT_S}
    results: list[dict[str, Any]] = child.ask(request, within_s=STATEMENT_S + _SLACK_S)["results"]
    if errors := [result["error"] for result in results if "error" in result]:
        raise SqlError(errors[0])
    last = next((result for result in reversed(results) if "rows" in result), None)
    return None if last is None or last["is_cut"] else rows_of(last["rows"])


def _answer(child: Child, task: SqlTask, path: Path) -> tuple[Row, ...] | None:
    if not task.answer_query:
        return None
    child.ask({"op": "open", "path": str(path)}, within_s=_OPEN_S)
    try:
        rows = _rows(child, task.answer_query)
    except SqlError as exc:
        raise TaskBrokenError(f"task {task.key}: answer_query: {exc}") from exc
    if rows is None:
        raise TaskBrokenError(
            f"task {task.key}: answer_query gives no rows, or more than {runner.RESULT_ROWS}"
        )
    return rows


def _folder(root: Path) -> Path:
    """A new folder that the runner may write."""
    folder = root / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    _hand_over(folder)
    return folder


def _hand_over(path: Path) -> None:
    """To the user that runners are when this process is root's."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
