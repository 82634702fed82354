"""One episode on an OpenEnv server, by the rules that keep its verdict honest.

    async with EpisodeSession.open(base_url, settings) as session:
        observation = await session.reset(task="train-0001")
        outcome = await session.step({"command": "ls"})

A session connects when it is reset, tries again only while the server has no free slot and only
before its first reset has answered, steps in order under one lock, and is over after `done` or any
`EpisodeError`. It never reconnects, never sends a step twice and never looks at the reward of a
reset. The policy gets the observation without metadata, and never the state; both hold answers in
many environments. Long texts are shortened with a plain mark, their full size and a digest beside
them.

Errors carry a fixed cause and a sentence that names the step and the limit (`errors`). An action
that does not fit the schema raises `ActionRejectedError` and costs nothing, until too many in a
row end the episode.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from orchestrator.environments.actions import (
    LIST_TOOLS,
    ActionSchema,
    Malformed,
    action_schema,
    takes_tool_calls,
)
from orchestrator.environments.connection import (
    LARGE_BYTES,
    Address,
    Answer,
    EpisodeConnection,
    Refused,
    plain,
)
from orchestrator.environments.errors import ActionRejectedError, Cause, EpisodeError
from orchestrator.environments.explaining import (
    explained,
    in_use,
    mib,
    refused_reset,
    refused_step,
    unstarted,
)
from orchestrator.environments.limits import EpisodeSettings
from orchestrator.environments.observing import Observation, observed, shortened

__all__ = [
    "EpisodeSession",
    "EpisodeSettings",
    "Observation",
    "StepOutcome",
    "Waiting",
    "shortened",
]

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 2.0
PAUSE_GROWTH = 1.6


@dataclass(frozen=True)
class StepOutcome:
    """The answer to one step."""

    number: int
    """From 1, counting steps that were answered."""
    observation: Observation
    reward: float | None
    """None: the environment gave no verdict on this step."""
    done: bool


@dataclass(frozen=True)
class Waiting:
    """A refusal for want of a free slot, told to `on_waiting` at the first and then each time."""

    waited_s: float
    active: int | None
    maximum: int | None


WaitingHook = Callable[[Waiting], Awaitable[None]]


class EpisodeSession:
    """See the module's text. All methods belong to one event loop."""

    def __init__(
        self, address: Address, settings: EpisodeSettings, on_waiting: WaitingHook | None
    ) -> None:
        self.address = address
        self.settings = settings
        self._on_waiting = on_waiting
        self._lock = asyncio.Lock()  # orders calls, so that numbers and answers belong together
        self._connection: EpisodeConnection | None = None
        self._schema: ActionSchema | None = None
        self._n_steps = 0
        self._n_rejected = 0
        self._is_over = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        base_url: str,
        settings: EpisodeSettings | None = None,
        *,
        on_waiting: WaitingHook | None = None,
    ) -> AsyncIterator[EpisodeSession]:
        """A session that is closed at the end, whatever happens. `ValueError` for a bad address."""
        session = cls(Address(base_url), settings or EpisodeSettings(), on_waiting)
        try:
            yield session
        finally:
            await session.close()

    @property
    def n_steps(self) -> int:
        """Steps whose answer was received and usable."""
        return self._n_steps

    @property
    def is_over(self) -> bool:
        return self._is_over

    async def reset(self, **params: Any) -> Observation:
        """Start the episode; waits for a free slot if need be. Once per session."""
        async with self._lock:
            if self._connection is not None or self._is_over:
                raise RuntimeError("a session is reset once; open another for another episode")
            try:
                answer = await self._first_answer(json.dumps({"type": "reset", "data": params}))
                observation = await self._observation(answer)
                if answer.data["done"]:
                    raise EpisodeError(
                        Cause.DONE_ON_RESET,
                        "The environment ended the episode at its start. No score.",
                        raw=plain(json.dumps(observation.fields), 2000),
                    )
                self._schema = await action_schema(
                    self.address,
                    timeout_s=self.settings.connect_timeout_s,
                    headers=self.settings.headers,
                )
            except BaseException:
                await self._end()
                raise
            return observation

    async def step(self, action: Mapping[str, Any] | str) -> StepOutcome:
        """Send one action; a text that is no action (not a JSON object) is rejected.

        `ActionRejectedError`: it does not fit, nothing was sent, the episode goes on.
        `EpisodeError`: the episode is over without a verdict.
        """
        async with self._lock:
            connection = self._running()
            number = self._n_steps + 1
            try:
                if not connection.is_open:
                    raise EpisodeError(Cause.SESSION_LOST)
                frame = await self._encoded(action, number)
                self._n_rejected = 0
                answer = await connection.ask(
                    frame,
                    timeout_s=self.settings.step_timeout_s,
                    timeout_cause=Cause.STEP_TIMEOUT,
                )
                if "observation" not in answer.data:
                    raise EpisodeError(Cause.PROTOCOL_VIOLATION, raw=plain(answer.text))
                observation = await self._observation(answer)
            except ActionRejectedError:
                raise
            except Refused as exc:
                await self._end()
                raise refused_step(exc, number, has_schema=self._schema is not None) from exc
            except EpisodeError as exc:
                await self._end()
                raise explained(exc, number, self.settings) from exc
            except BaseException:
                await self._end()
                raise
            self._n_steps = number
            done = bool(answer.data["done"])
            if done:
                self._is_over = True
            return StepOutcome(number, observation, answer.data["reward"], done)

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """Of the server's actions, once the episode has started; None if it publishes none."""
        return self._schema.schema if self._schema is not None else None

    async def list_tools(self) -> list[dict[str, Any]]:
        """The tools of a server of MCP tools, without counting as a step; none of any other.

        A server that refuses has none to offer. `EpisodeError` if the episode is lost.
        """
        async with self._lock:
            connection = self._running()
            if not takes_tool_calls(self.schema):
                return []
            try:
                answer = await connection.ask(
                    _frame(LIST_TOOLS),
                    timeout_s=self.settings.step_timeout_s,
                    timeout_cause=Cause.STEP_TIMEOUT,
                )
            except Refused:
                return []
            except EpisodeError as exc:
                await self._end()
                raise explained(exc, self._n_steps + 1, self.settings) from exc
            except BaseException:
                await self._end()
                raise
        tools = answer.data.get("observation", {}).get("tools")
        return [t for t in tools if isinstance(t, dict)] if isinstance(tools, list) else []

    async def state(self) -> dict[str, Any]:
        """The environment's state, for people with the right to see it; never for a policy."""
        async with self._lock:
            if self._connection is None:
                raise RuntimeError("reset first")
            try:
                answer = await self._connection.ask(
                    json.dumps({"type": "state"}),
                    timeout_s=self.settings.step_timeout_s,
                    timeout_cause=Cause.STEP_TIMEOUT,
                )
            except Refused as exc:
                text = plain(exc.text) or "no reason given"
                raise EpisodeError(Cause.ENV_EXCEPTION, f"No state: {text}") from exc
            return answer.data

    async def close(self) -> None:
        """End the connection within about a second. Safe to call twice."""
        await self._end()

    # --- reset ---------------------------------------------------------------------------------

    async def _first_answer(self, frame: str) -> Answer:
        started_at = time.monotonic()
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await self._try_reset(frame)
            except Refused as exc:
                if exc.code != "CAPACITY_REACHED":
                    raise refused_reset(exc) from exc
                waited_s = time.monotonic() - started_at
                waiting = Waiting(
                    waited_s, _count(exc.data, "active_sessions"), _count(exc.data, "max_sessions")
                )
            if self._connection is not None:
                await self._connection.close()
                self._connection = None
            left_s = self.settings.slot_wait_s - waited_s
            if left_s <= 0:
                raise EpisodeError(
                    Cause.NO_CAPACITY,
                    f"No free slot on the environment server within "
                    f"{self.settings.slot_wait_s:g} s"
                    f"{in_use(waiting.active, waiting.maximum)}. No score.",
                )
            if self._on_waiting is not None:
                await self._on_waiting(waiting)
            await asyncio.sleep(min(pause_s, left_s))
            pause_s = min(LONGEST_PAUSE_S, pause_s * PAUSE_GROWTH)

    async def _try_reset(self, frame: str) -> Answer:
        settings = self.settings
        try:
            self._connection = await EpisodeConnection.open(
                self.address,
                timeout_s=settings.connect_timeout_s,
                max_bytes=settings.max_observation_bytes,
                headers=settings.headers,
            )
        except EpisodeError as exc:
            raise EpisodeError(
                exc.cause,
                f"No connection to the environment server at {self.address.shown} within "
                f"{settings.connect_timeout_s:g} s ({exc.message}). No score.",
            ) from exc
        try:
            answer = await self._connection.ask(
                frame, timeout_s=settings.reset_timeout_s, timeout_cause=Cause.RESET_TIMEOUT
            )
        except EpisodeError as exc:
            raise unstarted(exc, settings) from exc
        if "observation" not in answer.data:
            raise unstarted(EpisodeError(Cause.PROTOCOL_VIOLATION), settings)
        return answer

    # --- step ----------------------------------------------------------------------------------

    def _running(self) -> EpisodeConnection:
        if self._is_over:
            raise RuntimeError("the episode is over; nothing more is sent")
        if self._connection is None:
            raise RuntimeError("reset first")
        return self._connection

    async def _encoded(self, action: Mapping[str, Any] | str, number: int) -> str:
        """The frame of an action that fits limit and schema."""
        if isinstance(action, Malformed):
            raise self._rejected(f"action: {action.reason}")
        if isinstance(action, str):
            raise self._rejected("action: not a JSON object")
        try:
            frame = await asyncio.to_thread(_frame, action) if _is_long(action) else _frame(action)
        except (TypeError, ValueError, RecursionError) as exc:
            raise self._rejected(f"action: not JSON ({plain(str(exc), 100)})") from exc
        size, limit = len(frame.encode()), self.settings.max_action_bytes
        if size > limit:
            raise EpisodeError(
                Cause.ACTION_TOO_LARGE,
                f"The action of step {number} is {mib(size)}; at most {mib(limit)} can be sent. "
                "No score.",
            )
        if self._schema is not None:
            try:
                self._schema.check(dict(action))
            except ActionRejectedError as exc:
                raise self._rejected(str(exc)) from exc
        return frame

    def _rejected(self, reason: str) -> ActionRejectedError | EpisodeError:
        """The rejection, or the end of the episode if it is one too many."""
        self._n_rejected += 1
        if self._n_rejected < self.settings.max_rejected_actions:
            return ActionRejectedError(reason)
        return EpisodeError(
            Cause.ACTION_REJECTED,
            f"{self._n_rejected} actions in a row did not fit the environment's schema "
            f"({reason}). No score.",
        )

    # --- both ----------------------------------------------------------------------------------

    async def _observation(self, answer: Answer) -> Observation:
        max_chars = self.settings.max_text_chars
        if answer.size_bytes > LARGE_BYTES:
            return await asyncio.to_thread(observed, answer, max_chars)
        return observed(answer, max_chars)

    async def _end(self) -> None:
        self._is_over = True
        if self._connection is not None:
            await self._connection.close()


def _frame(action: Mapping[str, Any]) -> str:
    # NaN is not JSON; ASCII keeps lone surrogates of a model's text sendable.
    return json.dumps({"type": "step", "data": dict(action)}, allow_nan=False)


def _is_long(action: Mapping[str, Any]) -> bool:
    return any(isinstance(v, str) and len(v) > LARGE_BYTES for v in action.values())


def _count(data: Mapping[str, Any], name: str) -> int | None:
    value = data.get(name)
    return value if isinstance(value, int) else None
