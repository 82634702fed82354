"""Episodes of the kind `tools`, as an OpenEnv environment.

One WebSocket is one episode: `reset(task=<key>)`, then calls of tools as openenv's MCP environments
take them (`list_tools`, `call_tool`). `submit` hands in the answer and ends the episode with the
verdict, made here: by the author's `grade(state, answer, task)` where there is one, else by
comparing the answer and the final state with what is expected. After `max_calls` calls the episode
ends and is judged without an answer. Until the end no reward is given.

What goes wrong with a call stands in the observation (`error`) and the episode goes on. A `grade`
that raises, takes too long or gives no finite number raises here: the client sees an error and no
reward.

There is no randomness of this environment's own: `seed` is accepted and has no effect.

Importing this module imports `openenv`; only the server's process should (`server` does).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

from fastapi import FastAPI
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from openenv.core.env_server import (
    CallToolAction,
    Environment,
    ListToolsAction,
    Observation,
    State,
    create_app,
)

from orchestrator.environments.tools.checks import checked_reward, has_state, is_equal
from orchestrator.environments.tools.functions import FunctionTools, executed, limited
from orchestrator.environments.tools.mcp import Loop, McpTools
from orchestrator.environments.tools.outcome import Outcome, ToolInfo, failed, of_text
from orchestrator.environments.tools.tasks import GRADE, SUBMIT, ToolSource, ToolTask

ENV_NAME = "tools"
GRADE_S = 30.0
_ANSWER = {
    "type": "object",
    "properties": {"answer": {"description": "The final answer."}},
    "required": ["answer"],
    "additionalProperties": False,
}
_NO_ANSWER = {"type": "object", "properties": {}, "additionalProperties": False}


class ToolsObservation(Observation):  # type: ignore[misc]
    """What a call brought; on reset the task's prompt; on `list_tools` the tools."""

    prompt: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_name: str | None = None
    result: Any = None
    error: dict[str, str] | None = None
    """`error_type` and `message`; the episode goes on."""
    note: str | None = None
    """Of the environment itself: why the episode is over."""


class ToolsState(State):  # type: ignore[misc]
    """Nothing that helps an agent: the episode, its number of calls and the task's key."""

    task: str | None = None


class Tools(Protocol):
    """The tools of one episode."""

    state: dict[str, Any]
    grade: Callable[..., Any] | None

    def tools(self) -> list[ToolInfo]: ...

    def call(self, name: str, arguments: Mapping[str, Any]) -> Outcome: ...

    def close(self) -> None: ...


class ToolsEnvironment(Environment):  # type: ignore[misc]
    """One episode at a time on one connection."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    tasks: ClassVar[Mapping[str, ToolTask]] = {}
    source: ClassVar[ToolSource]
    environ: ClassVar[Mapping[str, str]] = {}
    loop: ClassVar[Loop]

    def __init__(self) -> None:
        super().__init__()
        self._task: ToolTask | None = None
        self._tools: Tools | None = None
        self._calls: list[dict[str, Any]] = []
        self._is_over = False
        self._state = ToolsState()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: str = ""
    ) -> ToolsObservation:
        """Start the task named by its key.

        `ValueError` for a key that is not served, `RuntimeError` if the tools do not start.
        """
        self.close()
        found = self.tasks.get(task)
        if found is None:
            raise ValueError(f"unknown task {task[:80]!r}; {len(self.tasks)} tasks are served")
        source = self.source
        if source.functions:
            self._tools = FunctionTools(source.functions, found.state, source.tool_timeout_s)
        else:
            self._tools = McpTools(source, self.loop, self.environ)
        self._task, self._calls, self._is_over = found, [], False
        self._state = ToolsState(episode_id=episode_id, step_count=0, task=task)
        return ToolsObservation(prompt=found.prompt)

    def step(
        self,
        action: CallToolAction | ListToolsAction,
        timeout_s: float | None = None,
        **kwargs: Any,
    ) -> ToolsObservation:
        """List the tools or call one. `RuntimeError` before a reset or after the end."""
        task, tools = self._task, self._tools
        if task is None or tools is None or self._is_over:
            raise RuntimeError("no episode is running; reset first")
        if isinstance(action, ListToolsAction):
            listed = [*tools.tools(), self._submit_info(task)]
            return ToolsObservation(tools=[info.as_json() for info in listed])
        self._state.step_count += 1
        if action.tool_name == SUBMIT:
            outcome = self._checked_answer(task, action.arguments)
            if outcome.error is None:
                self._is_over = True
                return self._ended(task, tools, outcome.result)
        else:
            outcome = tools.call(action.tool_name, action.arguments)
        self._calls.append(
            {
                "tool": action.tool_name,
                "arguments": action.arguments,
                "result": outcome.result,
                "error": outcome.error,
            }
        )
        return self._answered(task, tools, action.tool_name, outcome)

    def _answered(
        self, task: ToolTask, tools: Tools, name: str, outcome: Outcome
    ) -> ToolsObservation:
        reward, note = None, None
        if self._state.step_count >= task.max_calls:
            self._is_over = True
            note = f"nothing submitted in {task.max_calls} calls: the episode is over"
            reward = self._reward(task, tools, None)
        return ToolsObservation(
            tool_name=name,
            result=outcome.result,
            error=dict(outcome.error) if outcome.error is not None else None,
            note=note,
            reward=reward,
            done=self._is_over,
        )

    def _ended(self, task: ToolTask, tools: Tools, answer: Any) -> ToolsObservation:
        reward = self._reward(task, tools, answer)
        return ToolsObservation(
            tool_name=SUBMIT, result=of_text("submitted").result, reward=reward, done=True
        )

    def _reward(self, task: ToolTask, tools: Tools, answer: Any) -> float:
        grade = self._grade(tools)
        if grade is not None:
            told = {**task.as_json(), "calls": copy.deepcopy(self._calls)}
            state = copy.deepcopy(tools.state)
            try:
                return checked_reward(limited(lambda: grade(state, answer, told), GRADE_S))
            except TimeoutError:
                raise RuntimeError(f"grade took longer than {GRADE_S:g} s") from None
            except Exception as exc:
                raise RuntimeError(f"grade failed: {type(exc).__name__}: {exc}"[:500]) from exc
        is_right = task.answer is None or is_equal(task.answer, answer, task.tolerance)
        if task.expected_state is not None:
            is_right = is_right and has_state(task.expected_state, tools.state, task.tolerance)
        return 1.0 if is_right else 0.0

    def _grade(self, tools: Tools) -> Callable[..., Any] | None:
        if not self.source.grade:
            return tools.grade
        found: Callable[..., Any] = executed(self.source.grade, "grade.py")[GRADE]
        return found

    def _submit_info(self, task: ToolTask) -> ToolInfo:
        words = "Hand in the final answer. Ends the episode."
        if not self._takes_answer(task):
            words = "Say that all is done. Ends the episode."
        return ToolInfo(SUBMIT, words, self._submit_schema(task))

    def _submit_schema(self, task: ToolTask) -> Mapping[str, Any]:
        if self.source.answer_schema is not None:
            return {"type": "object", **self.source.answer_schema}
        return _ANSWER if self._takes_answer(task) else _NO_ANSWER

    def _takes_answer(self, task: ToolTask) -> bool:
        return (
            self.source.answer_schema is not None
            or task.answer is not None
            or task.expected_state is None
        )

    def _checked_answer(self, task: ToolTask, arguments: Mapping[str, Any]) -> Outcome:
        """The answer as the result; or what does not fit its schema."""
        error = best_match(Draft202012Validator(self._submit_schema(task)).iter_errors(arguments))
        if error is not None:
            where = ".".join(str(part) for part in error.absolute_path) or "arguments"
            return failed("invalid_args", f"{where}: {error.message}"[:500])
        if self.source.answer_schema is not None:
            return Outcome(result=dict(arguments))
        return Outcome(result=arguments.get("answer"))

    @property
    def state(self) -> ToolsState:
        return self._state

    def close(self) -> None:
        """End the episode's tools. Safe to call twice."""
        if self._tools is not None:
            self._tools.close()
        self._task, self._tools = None, None


def build_app(
    source: ToolSource, tasks: Sequence[ToolTask], *, capacity: int, environ: Mapping[str, str]
) -> FastAPI:
    """The server's ASGI application. `environ`: variables of an MCP server's command."""
    if source.functions:
        # Once at the start, so that a fault is told by the server and not by every episode.
        FunctionTools(source.functions, {}, source.tool_timeout_s)
    if source.grade:
        executed(source.grade, "grade.py")
    served = type(
        "ToolsEnvironment",
        (ToolsEnvironment,),
        {
            "tasks": {task.key: task for task in tasks},
            "source": source,
            "environ": dict(environ),
            "loop": Loop(),
        },
    )
    app: FastAPI = create_app(
        served,
        CallToolAction,
        ToolsObservation,
        env_name=ENV_NAME,
        max_concurrent_envs=capacity,
        state_cls=ToolsState,
    )
    return app
