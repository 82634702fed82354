"""Databases."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.environments.episode import Action
from orchestrator.environments.errors import ServerStartError
from orchestrator.environments.kinds.base import Segments
from orchestrator.environments.kinds.fields import Field
from orchestrator.environments.resources import Resources
from orchestrator.environments.servers.local import LocalSpec
from orchestrator.environments.sql.tasks import MAX_STEPS, SqlTask, rows_of_tables
from orchestrator.environments.tasks_file import write_tasks

DSN_VARIABLE = "SWITCHBACK_SQL_DSN"
_DSN_NAMES = re.compile(r"SWITCHBACK_SQL_DSN(?:_[A-Z0-9]+)*")
"""Only these: another variable could hold the address of Switchback's own database."""
_SOURCE_FIELDS = ("engine", "dsn_env", "schema", "rows", "rows_sql")

_KEYWORDS = (
    *("select", "insert", "update", "delete", "replace", "with", "values", "merge", "explain"),
    *("create", "alter", "drop", "truncate", "begin", "start", "commit", "end", "rollback"),
    *("savepoint", "release", "pragma", "set", "attach", "vacuum", "analyze", "reindex"),
    *("show", "call", "do", "copy", "grant", "revoke"),
)
"""What a statement begins with, refused ones too: the database says why."""


class SqlKind:
    """A database for each episode; the product's own server."""

    capacity = 64
    resets_by_key = True
    summary = "A database for each task; graded by the state that the agent's statements leave."
    source_fields: Sequence[Field] = (
        Field(
            "engine",
            "Database",
            "choice",
            choices=(("sqlite", "SQLite"), ("postgres", "PostgreSQL")),
            default="sqlite",
        ),
        Field(
            "dsn_env",
            "Variable with the address of PostgreSQL",
            default=DSN_VARIABLE,
            help=f"{DSN_VARIABLE} or {DSN_VARIABLE}_NAME, set where workers run.",
        ),
        Field("schema", "Tables of all tasks", "sql", help="For tasks without a schema."),
        Field("rows", "Rows of all tasks", "json", help="For tasks without rows, by table."),
        Field("rows_sql", "Rows of all tasks as SQL", "sql"),
    )
    task_fields: Sequence[Field] = (
        Field("schema", "Tables", "sql", help="CREATE TABLE …; empty: those of the environment."),
        Field(
            "rows", "Rows", "json", help='{"table": [[value, …], …]} or a list of objects by table.'
        ),
        Field("rows_sql", "Rows as SQL", "sql", help="INSERT …"),
        Field(
            "solution",
            "Solution",
            "sql",
            is_secret=True,
            help="The state that it leaves is the expected one.",
        ),
        Field(
            "checks",
            "Checks",
            "json",
            is_secret=True,
            help='Queries on the final state: [{"sql": …, "rows": [[…]], "ordered": false}].',
        ),
        Field(
            "answer_query",
            "Query of the answer",
            "sql",
            is_secret=True,
            help="For questions: its rows are what the agent must answer.",
        ),
        Field("ordered", "The order of the answer's rows counts", "flag", default=False),
        Field("tables", "Tables to compare", "text_list", help="Empty: all."),
        Field("ignore_columns", "Columns not to compare", "text_list", help="table.column"),
        Field("tolerance", "Tolerance", "number", help="Greatest difference of numbers."),
        Field(
            "partial",
            "Partial credit",
            "flag",
            default=False,
            help="The share of the wanted change as reward.",
        ),
        Field("max_steps", "Steps at most", "integer", default=MAX_STEPS),
    )
    _fence = re.compile(r"```(?:[\w-]*)[ \t]*\n?(.*?)(?:```|\Z)", re.DOTALL)
    _answer = re.compile(r"^[ \t*#>]*(?:final )?answer[ \t*]*:[ \t*]*", re.IGNORECASE)
    _done = re.compile(r"\W*(?:(?:i am |i'm |all )?done|finished)\W*", re.IGNORECASE)
    _statement = re.compile(
        rf"^[ \t>]*(?:sql\s*:\s*)?((?:{'|'.join(_KEYWORDS)})\b.*)",
        re.IGNORECASE | re.DOTALL | re.MULTILINE,
    )

    def check_source(self, source: Mapping[str, Any]) -> None:
        if unknown := sorted(set(source) - set(_SOURCE_FIELDS)):
            raise ValueError(f"{unknown[0]}: unknown; accepts {', '.join(_SOURCE_FIELDS)}")
        if source.get("engine", "sqlite") not in ("sqlite", "postgres"):
            raise ValueError(f"engine: {source['engine']!r}; accepts sqlite, postgres")
        if not _DSN_NAMES.fullmatch(str(source.get("dsn_env") or DSN_VARIABLE)):
            raise ValueError(f"dsn_env: accepts {DSN_VARIABLE} and {DSN_VARIABLE}_NAME")
        for name in ("schema", "rows_sql"):
            if not isinstance(source.get(name) or "", str):
                raise ValueError(f"{name}: accepts SQL as text")
        rows_of_tables(source.get("rows") or {})

    def check_task(self, spec: Mapping[str, Any], reset: Mapping[str, Any]) -> None:
        """Whether its SQL runs is found out by the server, at the task's first reset."""
        SqlTask.from_json(spec)

    def server(
        self,
        *,
        name: str,
        source: Mapping[str, Any],
        resources: Resources,
        specs: Sequence[Mapping[str, Any]],
        data: Path,
    ) -> LocalSpec:
        """Writes the tasks, solutions included, to a file that only this user can read."""
        self.check_source(source)
        tasks = [SqlTask.from_json(_with_source(spec, source)) for spec in specs]
        if not tasks:
            raise ValueError("tasks: a sql environment needs at least one")
        if bare := next((task for task in tasks if not task.schema), None):
            raise ValueError(f"schema: task {bare.key} has none, and neither has the environment")
        path = write_tasks([task.as_json() for task in tasks], data / name)
        capacity = resources.slots or self.capacity
        engine = str(source.get("engine") or "sqlite")
        return LocalSpec(
            name=name,
            command=(
                *(sys.executable, "-m", "orchestrator.environments.sql.server"),
                *("--engine", engine, "--tasks", str(path), "--uds", "{socket}"),
                *("--capacity", str(capacity)),
            ),
            capacity=capacity,
            max_servers=resources.max_servers,
            probe={"task": tasks[0].key},
            env={} if engine == "sqlite" else {"SQL_DSN": _dsn(source)},
        )

    def action_of(self, reply: str) -> Action:
        """The first code fence; else `answer:` or `done`; else from the first line that begins like
        a statement to the end of its block. Anything else is sent as SQL, for the database to say
        what is wrong with it.
        """
        if fenced := self._fence.search(reply):
            reply = fenced[1]
        text = reply.strip()
        for line in text.splitlines():
            if self._statement.match(line):
                break
            if mark := self._answer.match(line):
                rest = text[text.index(line) + mark.end() :]
                return {"answer": rest.strip()}
            if self._done.fullmatch(line):
                return {"done": True}
        if found := self._statement.search(text):
            # A blank line ends the statement: what follows explains it.
            statement, *_ = re.split(r"\n[ \t]*\n", found[1], maxsplit=1)
            return {"sql": statement.strip()}
        return {"sql": text}

    def segments(self, observation: Mapping[str, Any]) -> Segments:
        return [dict(segment) for segment in observation["segments"]] or [
            {"kind": "scaffold", "text": "(the episode is over)"}
        ]


def _with_source(spec: Mapping[str, Any], source: Mapping[str, Any]) -> dict[str, Any]:
    """What the task does not say, the environment says for all."""
    common = {name: source[name] for name in ("schema", "rows", "rows_sql") if source.get(name)}
    if spec.get("schema"):
        return dict(spec)
    own = {name: value for name, value in spec.items() if value not in (None, "", {}, [])}
    return {**common, **own}


def _dsn(source: Mapping[str, Any]) -> str:
    variable = str(source.get("dsn_env") or DSN_VARIABLE)
    dsn = os.environ.get(variable, "")
    if not dsn:
        raise ServerStartError(
            f"The environment needs PostgreSQL: set {variable} to its address "
            "(postgresql://user:password@host/database) where workers run."
        )
    if dsn == os.environ.get("DATABASE_URL"):
        raise ServerStartError(
            f"{variable} is the address of Switchback's own database; agents need another one."
        )
    return dsn
