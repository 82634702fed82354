"""What the environment needs of a database, whichever it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from orchestrator.environments.sql.state import Row, State
from orchestrator.environments.sql.tasks import SqlTask

STATEMENT_S = 5.0
"""Time of one action's statements together."""
SNAPSHOT_S = 10.0


class TaskBrokenError(ValueError):
    """The author's SQL does not run; names the task, the field and what the database says."""


class VerdictError(RuntimeError):
    """The final state could not be read: no verdict is possible."""


@dataclass(frozen=True)
class Prepared:
    """A task with what follows from its author's SQL. Stays in the server."""

    task: SqlTask
    schema: str
    """As the database tells it; shown to the agent."""
    initial: State
    expected: State | None
    """After the solution; None without one."""
    answer: tuple[Row, ...] | None
    """Rows of the answer query; None without one."""


@dataclass(frozen=True)
class Reply:
    """What the statements of one action brought."""

    results: Sequence[Mapping[str, Any]]
    """Each `{columns, rows, is_cut}`, `{changed}` or `{error}`."""
    in_transaction: bool = False
    ended: str = ""
    """Why the statements were ended from outside; empty if they were not."""


class Database(Protocol):
    """The private database of an episode."""

    def run(self, sql: str) -> Reply:
        """The agent's statements."""

    def leave(self) -> None:
        """The agent is done: an open transaction is rolled back, its connection ends."""

    def state(self, names: Sequence[str] | None) -> State | None:
        """After `leave`. None: more than can be compared. `VerdictError`."""

    def rows(self, sql: str) -> tuple[Row, ...] | None:
        """Of an author's query, after `leave`. None: it fails on this state, or gives too many."""

    def close(self) -> None:
        """Removes everything. Safe to call twice."""


class Engine(Protocol):
    def prepare(self, task: SqlTask) -> Prepared:
        """`TaskBrokenError`."""

    def open(self, prepared: Prepared) -> Database:
        """A fresh copy for an episode."""

    def close(self) -> None:
        """Removes what the engine keeps."""
