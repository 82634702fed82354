"""The live episode of a tryout: reset, step, state, and everything again in a fresh session.

Knows no database. What an environment answered is kept in full for grading and as the payload of
its event, texts shortened, with a digest of each field so that a replay can say what differs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.environments.actions import action_schema
from orchestrator.environments.connection import Address, plain
from orchestrator.environments.errors import ActionRejectedError, EpisodeError
from orchestrator.environments.kinds import Kind
from orchestrator.environments.session import (
    EpisodeSession,
    EpisodeSettings,
    Observation,
    Waiting,
)
from orchestrator.runs.acting import answer_in, text_in
from orchestrator.tryouts.limits import KEPT_CHARS
from orchestrator.tryouts.play import differences, digests_of
from rubrics.types import Step

PATIENCE = 1_000_000
"""A person may be refused as often as they like; the limit is for agents in a loop."""

OnWaiting = Callable[[Waiting], Awaitable[None]]


@dataclass
class Taken:
    """A step that was answered."""

    action: dict[str, Any]
    payload: dict[str, Any]
    """Of its observation's event."""
    step: Step
    """In full, for grading."""


@dataclass
class Replayed:
    """What came of playing again."""

    found: list[dict[str, Any]] = field(default_factory=list)
    """[{"step", "fields"}, ...] where the environment answered differently."""
    changed: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The answers that replace those of before, by number of step; 0 is the reset."""
    stopped: str = ""
    """Why it ended before the last step; empty when all steps were taken."""


class LiveEpisode:
    """All methods belong to one event loop, one at a time."""

    def __init__(
        self, base_url: str, settings: EpisodeSettings, kind: Kind, on_waiting: OnWaiting
    ) -> None:
        self._base_url = base_url
        self._settings = replace(settings, max_rejected_actions=PATIENCE)
        self._kind = kind
        self._on_waiting = on_waiting
        self._session: EpisodeSession | None = None
        self.params: dict[str, Any] = {}
        self.reset_payload: dict[str, Any] | None = None
        self.taken: list[Taken] = []
        self.tools: list[dict[str, Any]] = []
        """Of a server whose actions are calls of tools."""
        self.failure = ""
        """Why no step can be taken although the episode has not ended; empty if one can."""

    @property
    def settings(self) -> EpisodeSettings:
        return self._settings

    @property
    def has_begun(self) -> bool:
        return self.reset_payload is not None

    @property
    def is_done(self) -> bool:
        return bool(self.taken) and self.taken[-1].step.done

    async def schema(self) -> Mapping[str, Any] | None:
        """What the server accepts as an action; None where it publishes nothing usable."""
        found = await action_schema(
            Address(self._base_url),
            timeout_s=self._settings.connect_timeout_s,
            headers=self._settings.headers,
        )
        return found.schema if found is not None else None

    async def reset(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """A fresh session with these parameters; the payload of its first observation.

        `EpisodeError`: no episode runs then.
        """
        await self.close()
        self.params, self.taken, self.reset_payload = dict(params), [], None
        self.failure = "no episode runs"
        self._session = EpisodeSession(Address(self._base_url), self._settings, self._on_waiting)
        started_s = time.monotonic()
        try:
            observation = await self._session.reset(**self.params)
        except TypeError as exc:
            raise ValueError(f"a parameter cannot be sent: {exc}") from exc
        took_s = time.monotonic() - started_s
        # As in runs: after each reset, before the first step, and none itself.
        self.tools = await self._session.list_tools()
        self.reset_payload = self._observed(0, observation, reward=None, done=False, took_s=took_s)
        self.reset_payload["params"] = self.params
        self.failure = ""
        return self.reset_payload

    async def step(self, action: Mapping[str, Any], *, text: str, seq: int) -> dict[str, Any]:
        """The payload of the observation.

        `ActionRejectedError`: not sent, the episode goes on. `EpisodeError`: the session is over.
        """
        if self._session is None or not self.has_begun:
            raise RuntimeError("reset first")
        started_s = time.monotonic()
        try:
            outcome = await self._session.step(dict(action))
        except EpisodeError as exc:
            self.failure = exc.message
            raise
        payload = self._observed(
            outcome.number,
            outcome.observation,
            reward=outcome.reward,
            done=outcome.done,
            took_s=time.monotonic() - started_s,
        )
        fields = outcome.observation.fields
        segments = self._kind.segments(fields)
        self.taken.append(
            Taken(
                action=dict(action),
                payload=payload,
                step=Step(
                    index=outcome.number,
                    seq=seq,
                    action=text,
                    command=text_in(action, "command"),
                    answer=answer_in(action),
                    output="".join(s["text"] for s in segments if s["kind"] == "env_output"),
                    exit_status=payload["exit_status"],
                    reward=outcome.reward,
                    done=outcome.done,
                ),
            )
        )
        return payload

    async def replay(
        self, params: Mapping[str, Any], before: Mapping[str, Any], steps: list[PastStep]
    ) -> Replayed:
        """The reset and all `steps` again in a fresh session; compares each answer.

        Never raises for what the environment does: what stands afterwards is in `taken`.
        """
        result = Replayed()
        try:
            payload = await self.reset(params)
            _compare(result, 0, before, payload)
            for past in steps:
                payload = await self.step(past.action, text=past.text, seq=past.seq)
                _compare(result, len(self.taken), past.payload, payload)
                if self.is_done and len(self.taken) < len(steps):
                    result.stopped = f"the episode ended at step {len(self.taken)}"
                    break
        except (EpisodeError, ActionRejectedError, ValueError) as exc:
            result.stopped = exc.message if isinstance(exc, EpisodeError) else str(exc)
        return result

    async def state(self) -> str:
        """The environment's state as JSON. `EpisodeError` if it does not tell."""
        if self._session is None or not self.has_begun:
            raise RuntimeError("reset first")
        return shown(await self._session.state())

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _observed(
        self,
        number: int,
        observation: Observation,
        *,
        reward: float | None,
        done: bool,
        took_s: float,
    ) -> dict[str, Any]:
        fields = observation.fields
        status = fields.get("exit_status")
        return {
            "step": number,
            "segments": [
                {"kind": piece["kind"], "text": kept(piece["text"])}
                for piece in self._kind.segments(fields)
            ],
            "observation": shown(fields),
            "metadata": shown(observation.metadata) if observation.metadata else "",
            "size_bytes": observation.size_bytes,
            "is_shortened": observation.is_shortened,
            "digests": digests_of(fields, reward=reward, done=done),
            "reward": reward,
            "done": done,
            "exit_status": status
            if isinstance(status, int) and not isinstance(status, bool)
            else None,
            "latency_s": round(took_s, 3),
        }


@dataclass(frozen=True)
class PastStep:
    """A step to play again."""

    action: Mapping[str, Any]
    payload: Mapping[str, Any]
    """What its observation's event said."""
    text: str
    seq: int


def _compare(
    result: Replayed, number: int, before: Mapping[str, Any], after: dict[str, Any]
) -> None:
    if names := differences(before["digests"], after["digests"]):
        result.found.append({"step": number, "fields": names})
        result.changed[str(number)] = after


def failure(number: int, exc: EpisodeError) -> dict[str, Any]:
    """Payload of the event of a step that failed; 0 is the reset."""
    return {
        "step": number,
        "cause": exc.cause.value,
        "message": exc.message.removesuffix(" No score."),
        "raw": plain(exc.raw, 2000),
    }


def shown(value: Any) -> str:
    """JSON for people, shortened. NaN has no place in a log, so it becomes a word here."""
    return kept(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def kept(text: str) -> str:
    if len(text) <= KEPT_CHARS:
        return text
    return f"{text[:KEPT_CHARS]}\n[shortened: {len(text):,} characters in all]"


async def closed_quietly(episode: LiveEpisode) -> None:
    """Within about a second, whatever the server does."""
    async with asyncio.timeout(2.0):
        await episode.close()
