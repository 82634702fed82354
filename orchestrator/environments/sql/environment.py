"""Episodes of the sql kind, as an OpenEnv environment.

One WebSocket is one episode: `reset(task=<key>)` makes a private database and shows its schema,
`step({"sql": ...})` runs statements on it, `step({"done": true})` or `step({"answer": ...})` ends
the episode with the verdict. The verdict is made here from the state that is left, outside the
agent's reach; solutions, checks and answers stand neither in observations nor in state or metadata,
and no file of theirs is open in the process that runs the agent's statements. After `max_steps`
actions the state is graded as it is.

There is no randomness of ours: `seed` is accepted and has no effect, tasks differ by their key.

A failure of the environment (a task whose SQL does not run, a state that cannot be read) raises, so
that a client sees an error and no reward. What an agent's statements bring upon themselves is an
observation.

Importing this module imports `openenv`; only the server's process should (`server` does).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from fastapi import FastAPI
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from orchestrator.environments.sql.engine import Database, Engine, Prepared, VerdictError
from orchestrator.environments.sql.grade import grade, last_rows_of
from orchestrator.environments.sql.observation import segments_of
from orchestrator.environments.sql.state import Row, report_of
from orchestrator.environments.sql.tasks import SqlTask

ENV_NAME = "sql"
MAX_SQL = 10_000
MAX_ANSWER = 10_000
_ALTERNATIVES = ("sql", "answer", "done")


def _exactly_one(schema: dict[str, Any]) -> None:
    """Publish the rule that the validator enforces: clients check against the schema first."""
    schema["oneOf"] = [{"required": [name]} for name in _ALTERNATIVES]
    for name in _ALTERNATIVES:
        schema["properties"][name].pop("default", None)
    schema["properties"]["done"]["const"] = True


class SqlAction(Action):  # type: ignore[misc]
    """Statements, the final answer, or the word that all is done: exactly one of the three."""

    model_config = ConfigDict(json_schema_extra=_exactly_one)

    sql: str = Field(default="", min_length=1, max_length=MAX_SQL, pattern=r"^[^\x00]*$")
    """One statement, or several separated by semicolons."""
    answer: str = Field(default="", max_length=MAX_ANSWER, pattern=r"^[^\x00]*$")
    done: bool = False
    """True."""

    @model_validator(mode="after")
    def _one_of_three(self) -> SqlAction:
        given = self.model_fields_set & set(_ALTERNATIVES)
        if len(given) != 1 or (given == {"done"} and not self.done):
            # A plain ValueError would ride along in the error's context, which openenv 0.10 cannot
            # serialise: the session would end with SESSION_ERROR.
            raise PydanticCustomError("one_of", "give exactly one of sql, answer and done: true")
        return self


class SqlObservation(Observation):  # type: ignore[misc]
    """What an action brought. The agent reads the segments' texts, joined."""

    segments: list[dict[str, str]] = Field(default_factory=list)
    """`kind` (context, env_output, scaffold, warning) and `text`; on reset the schema."""
    row_count: int | None = None
    """Rows of the last query, as many as were read; null without one."""
    error: str | None = None
    """What the database says of the statement that failed."""
    truncated: bool = False
    """True if there are more rows than were read."""


class SqlState(State):  # type: ignore[misc]
    """The episode, its number of steps and the task's key; after the end what was left."""

    task: str | None = None
    tables: dict[str, dict[str, Any]] | None = None
    """Null until the episode is over, and where the state was too big to be read."""


class Shelf:
    """The tasks, each prepared when it is first asked for. Safe from several threads."""

    def __init__(self, tasks: Sequence[SqlTask], engine: Engine) -> None:
        self.engine = engine
        self._tasks = {task.key: task for task in tasks}
        self._prepared: dict[str, Prepared] = {}
        self._locks = {task.key: threading.Lock() for task in tasks}

    def __getitem__(self, key: str) -> Prepared:
        """`ValueError` for an unknown key; `TaskBrokenError`."""
        if key not in self._tasks:
            raise ValueError(f"unknown task {key[:80]!r}; {len(self._tasks)} tasks are served")
        with self._locks[key]:
            if key not in self._prepared:
                self._prepared[key] = self.engine.prepare(self._tasks[key])
            return self._prepared[key]


class SqlEnvironment(Environment):  # type: ignore[misc]
    """One episode at a time on one connection."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    shelf: ClassVar[Shelf]

    def __init__(self) -> None:
        super().__init__()
        self._prepared: Prepared | None = None
        self._database: Database | None = None
        self._last_rows: tuple[Row, ...] | None = None
        self._is_over = False
        self._state = SqlState()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: str = ""
    ) -> SqlObservation:
        """Start the task named by its key. `ValueError` for a key that is not served."""
        self.close()
        self._prepared = self.shelf[task]
        self._database = self.shelf.engine.open(self._prepared)
        self._last_rows, self._is_over = None, False
        self._state = SqlState(episode_id=episode_id, step_count=0, task=task)
        return SqlObservation(segments=[{"kind": "context", "text": self._prepared.schema}])

    def step(
        self, action: SqlAction, timeout_s: float | None = None, **kwargs: Any
    ) -> SqlObservation:
        """Run the statements or judge. `RuntimeError` before a reset or after the end."""
        if self._prepared is None or self._database is None or self._is_over:
            raise RuntimeError("no episode is running; reset first")
        self._state.step_count += 1
        if "sql" not in action.model_fields_set:
            answer = action.answer if "answer" in action.model_fields_set else None
            return SqlObservation(reward=self._verdict(answer), done=True)
        return self._run(self._database, action.sql, self._prepared.task.max_steps)

    def _run(self, database: Database, sql: str, max_steps: int) -> SqlObservation:
        reply = database.run(sql)
        segments = segments_of(reply.results, in_transaction=reply.in_transaction)
        if reply.ended:
            warning = f"({reply.ended}; what was not committed is lost)"
            segments = [{"kind": "warning", "text": warning}]
        error = next((r["error"] for r in reply.results if "error" in r), reply.ended or None)
        rows = [r for r in reply.results if "rows" in r]
        if rows and not error:
            self._last_rows = last_rows_of(reply.results)
        fields: dict[str, Any] = {
            "row_count": len(rows[-1]["rows"]) if rows else None,
            "error": error,
            "truncated": bool(rows and rows[-1]["is_cut"]),
        }
        if self._state.step_count >= max_steps:
            text = f"\n({max_steps} steps are used up: the database is graded as it is)"
            segments.append({"kind": "warning", "text": text})
            fields |= {"reward": self._verdict(None), "done": True}
        return SqlObservation(segments=segments, **fields)

    def _verdict(self, answer: str | None) -> float:
        assert self._prepared is not None
        assert self._database is not None
        self._is_over = True
        self._database.leave()
        fresh = self.shelf.engine.open(self._prepared) if self._prepared.task.checks else None
        try:
            reward = grade(
                self._prepared, self._database, fresh, answer=answer, last_rows=self._last_rows
            )
            # A report is for criteria that want one; the verdict does not hang on it.
            with contextlib.suppress(VerdictError):
                left = self._database.state(None)
                self._state.tables = None if left is None else report_of(left)
            return reward
        finally:
            if fresh is not None:
                fresh.close()
            self._database.close()

    @property
    def state(self) -> SqlState:
        return self._state

    def close(self) -> None:
        """Remove the episode's database. Safe to call twice."""
        if self._database is not None:
            self._database.close()
        self._database, self._prepared = None, None


def build_app(tasks: Sequence[SqlTask], *, engine: Engine, capacity: int) -> FastAPI:
    """The server's ASGI application."""
    served = type("SqlEnvironment", (SqlEnvironment,), {"shelf": Shelf(tasks, engine)})
    app: FastAPI = create_app(
        served,
        SqlAction,
        SqlObservation,
        env_name=ENV_NAME,
        max_concurrent_envs=capacity,
        state_cls=SqlState,
    )
    return app
