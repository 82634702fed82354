"""Episodes of the qa kind, as an OpenEnv environment.

`reset(task=<key>)` shows the question, `step({"answer": text})` ends the episode with the verdict.
The reference answers stand neither in observations nor in state or metadata. An empty answer is an
answer, and wrong.

There is no randomness: `seed` is accepted and has no effect, tasks differ by their key. A pattern
that cannot be matched in time raises, so that a client sees an error and no reward.

Importing this module imports `openenv`; only the server's process should (`server` does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fastapi import FastAPI
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import Field

from orchestrator.environments.qa.answers import QaTask, grade

ENV_NAME = "qa"
MAX_ANSWER = 20_000


class QaAction(Action):  # type: ignore[misc]
    """The answer."""

    answer: str = Field(max_length=MAX_ANSWER, pattern=r"^[^\x00]*$")


class QaObservation(Observation):  # type: ignore[misc]
    """The question on reset; nothing after the answer."""

    segments: list[dict[str, str]] = Field(default_factory=list)
    """`kind` and `text`."""


class QaState(State):  # type: ignore[misc]
    """Nothing that helps an agent: the episode, its number of steps and the task's key."""

    task: str | None = None


class QaEnvironment(Environment):  # type: ignore[misc]
    """One episode at a time on one connection."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    tasks: ClassVar[Mapping[str, QaTask]] = {}

    def __init__(self) -> None:
        super().__init__()
        self._task: QaTask | None = None
        self._state = QaState()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: str = ""
    ) -> QaObservation:
        """Pose the task named by its key. `ValueError` for a key that is not served."""
        found = self.tasks.get(task)
        if found is None:
            raise ValueError(f"unknown task {task[:80]!r}; {len(self.tasks)} tasks are served")
        self._task = found
        self._state = QaState(episode_id=episode_id, step_count=0, task=task)
        return QaObservation(segments=[{"kind": "context", "text": found.prompt}])

    def step(
        self, action: QaAction, timeout_s: float | None = None, **kwargs: Any
    ) -> QaObservation:
        """Judge the answer. `RuntimeError` before a reset or after the end."""
        task, self._task = self._task, None
        if task is None:
            raise RuntimeError("no episode is running; reset first")
        self._state.step_count += 1
        return QaObservation(reward=grade(task, action.answer), done=True)

    @property
    def state(self) -> QaState:
        return self._state


def build_app(tasks: Sequence[QaTask], *, capacity: int) -> FastAPI:
    """The server's ASGI application."""
    served = type("QaEnvironment", (QaEnvironment,), {"tasks": {t.key: t for t in tasks}})
    app: FastAPI = create_app(
        served,
        QaAction,
        QaObservation,
        env_name=ENV_NAME,
        max_concurrent_envs=capacity,
        state_cls=QaState,
    )
    return app
