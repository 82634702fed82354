"""Episodes of the terminal kind, as an OpenEnv environment.

One WebSocket is one episode: `reset(task=<key>)` lays out a private copy of the task's files,
`step({"command": ...})` runs a command on them in the sandbox, `step({"answer": ...})` ends the
episode with the verdict. The verdict is made here, outside the agent's reach; the answer stands
neither in observations nor in state or metadata, and the file of tasks is not visible in the
sandbox. Where the task has a verifier, it judges a copy of the agent's folder (`verifier`); with an
answer as well, both must be right. After `max_steps` actions the episode is over: without an answer
that is asked for with reward 0, which is this environment's own verdict (no answer is no right
answer); else the verifier decides. So is it when the files become too many.

There is no randomness: `seed` is accepted and has no effect, tasks differ by their key.

A failure of the sandbox or of a verifier raises, so that a client sees an error and no reward.

Importing this module imports `openenv`; only the server's process should (`server` does).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from fastapi import FastAPI
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from orchestrator.environments.sandbox import (
    Sandbox,
    folder_size_bytes,
    remove_folder,
)
from orchestrator.environments.terminal.files import ResultTooLargeError, lay_out
from orchestrator.environments.terminal.final_state import files_of
from orchestrator.environments.terminal.observation import Segment, segments_of
from orchestrator.environments.terminal.spec import TaskSpec, is_correct
from orchestrator.environments.terminal.verifier import verify

ENV_NAME = "terminal"
MAX_TEXT = 2000


def _exactly_one(schema: dict[str, Any]) -> None:
    """Publish the rule that the validator enforces: clients check against the schema first."""
    schema["oneOf"] = [{"required": ["command"]}, {"required": ["answer"]}]
    for name in ("command", "answer"):
        schema["properties"][name].pop("default", None)


class TerminalAction(Action):  # type: ignore[misc]
    """A shell command, or the final answer: exactly one of the two."""

    model_config = ConfigDict(json_schema_extra=_exactly_one)

    command: str = Field(default="", min_length=1, max_length=MAX_TEXT, pattern=r"^[^\x00]*$")
    """One line or several for bash, run in the task's folder."""
    answer: str = Field(default="", min_length=1, max_length=MAX_TEXT, pattern=r"^[^\x00]*$")

    @model_validator(mode="after")
    def _one_of_both(self) -> TerminalAction:
        if ("command" in self.model_fields_set) == ("answer" in self.model_fields_set):
            # A plain ValueError would ride along in the error's context, which openenv 0.10 cannot
            # serialise: the session would end with SESSION_ERROR.
            raise PydanticCustomError("one_of", "give exactly one of command and answer")
        return self


class TerminalObservation(Observation):  # type: ignore[misc]
    """What an action brought. The agent reads the segments' texts, joined."""

    segments: list[dict[str, str]] = Field(default_factory=list)
    """`kind` (env_output, scaffold, warning) and `text`; on reset the task's question."""
    exit_status: int | None = None
    """Of the command; null on reset and after an answer."""
    truncated: bool = False
    """True if output was cut."""


class TerminalState(State):  # type: ignore[misc]
    """The episode, its number of steps and the task's key; after the end what was left."""

    task: str | None = None
    files: dict[str, dict[str, Any]] | None = None
    """Null until the episode is over: see `final_state`."""


class TerminalEnvironment(Environment):  # type: ignore[misc]
    """One episode at a time on one connection."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    tasks: ClassVar[Mapping[str, TaskSpec]] = {}
    sandbox: ClassVar[Sandbox]
    root: ClassVar[Path]

    def __init__(self) -> None:
        super().__init__()
        self._task: TaskSpec | None = None
        self._folder: Path | None = None
        self._is_over = False
        self._state = TerminalState()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: str = ""
    ) -> TerminalObservation:
        """Start the task named by its key. `ValueError` for a key that is not served."""
        self.close()
        found = self.tasks.get(task)
        if found is None:
            raise ValueError(f"unknown task {task[:80]!r}; {len(self.tasks)} tasks are served")
        self._folder = lay_out(self.root, found.files, self.sandbox.isolation)
        self._task, self._is_over = found, False
        self._state = TerminalState(episode_id=episode_id, step_count=0, task=task)
        return TerminalObservation(segments=[{"kind": "context", "text": found.prompt}])

    def step(
        self, action: TerminalAction, timeout_s: float | None = None, **kwargs: Any
    ) -> TerminalObservation:
        """Run the command or judge the answer. `RuntimeError` before a reset or after the end."""
        if self._task is None or self._folder is None or self._is_over:
            raise RuntimeError("no episode is running; reset first")
        self._state.step_count += 1
        if "answer" in action.model_fields_set:
            self._is_over = True
            reward, note = self._verdict(self._task, self._folder, action.answer)
            segments = [Segment("warning", f"({note})").as_json()] if note else []
            return TerminalObservation(segments=segments, reward=reward, done=True)
        return self._run(self._task, self._folder, action.command)

    def _run(self, task: TaskSpec, folder: Path, command: str) -> TerminalObservation:
        result = self.sandbox.run(command, folder)
        segments = segments_of(
            result.output,
            exit_status=result.exit_status,
            is_truncated=result.is_truncated,
            warning=result.warning,
        )
        limit_bytes = self.sandbox.limits.folder_bytes
        end, reward = "", None
        if folder_size_bytes(folder) > limit_bytes:
            end, reward = f"the files take more than {limit_bytes // 2**20} MiB", 0.0
        elif self._state.step_count >= task.max_steps:
            self._is_over = True
            end = f"no answer in {task.max_steps} steps" if task.answer else "no step is left"
            reward, note = (0.0, "") if task.answer else self._verdict(task, folder, "")
            end = note or end
        if end:
            self._is_over = True
            end += ": the episode is over"
            segments.append(Segment("warning", f"\n({end})"))
        return TerminalObservation(
            segments=[segment.as_json() for segment in segments],
            exit_status=result.exit_status,
            truncated=result.is_truncated,
            reward=reward,
            done=bool(end),
        )

    def _verdict(self, task: TaskSpec, folder: Path, answer: str) -> tuple[float, str]:
        """The reward, and a remark where it needs one. `VerifierError` where there is none."""
        if task.answer and not is_correct(task, answer):
            return 0.0, ""
        if not task.verifier:
            return 1.0, ""
        try:
            return verify(task, folder, answer, sandbox=self.sandbox, root=self.root), ""
        except ResultTooLargeError as exc:
            return 0.0, str(exc)

    @property
    def state(self) -> TerminalState:
        if self._is_over and self._folder is not None and self._state.files is None:
            self._state.files = files_of(self._folder)
        return self._state

    def close(self) -> None:
        """Remove the episode's files. Safe to call twice."""
        if self._folder is not None:
            remove_folder(self._folder)
        self._folder, self._task = None, None


def build_app(tasks: Sequence[TaskSpec], *, sandbox: Sandbox, root: Path, capacity: int) -> FastAPI:
    """The server's ASGI application. `root` holds the episodes' folders (`private_root`)."""
    served = type(
        "TerminalEnvironment",
        (TerminalEnvironment,),
        {"tasks": {task.key: task for task in tasks}, "sandbox": sandbox, "root": root},
    )
    app: FastAPI = create_app(
        served,
        TerminalAction,
        TerminalObservation,
        env_name=ENV_NAME,
        max_concurrent_envs=capacity,
        state_cls=TerminalState,
    )
    return app
