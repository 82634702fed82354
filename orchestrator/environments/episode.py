"""Driving one episode from reset to a verdict.

`run_episode` joins a session and a policy and ends in exactly one state: `scored`, `errored` or
`cancelled`. Without a verdict the reward is None. What happens on the way goes to a hook, in order
and before the next thing is sent, so that a caller can commit it first.

A policy may be an ordinary function; then it runs in a thread, because a blocked event loop loses
the connections of every episode on it (keepalive). An asynchronous policy must not block.

A hook that raises ends the episode; its error passes through after the connection is closed.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from orchestrator.environments.connection import plain
from orchestrator.environments.errors import ActionRejectedError, Cause, EpisodeError
from orchestrator.environments.observing import reported_scores
from orchestrator.environments.score import Score, score_of
from orchestrator.environments.session import (
    EpisodeSession,
    EpisodeSettings,
    Observation,
    StepOutcome,
    Waiting,
    shortened,
)

ACTION_KEPT_CHARS = 4096
_PLAIN = frozenset({str, int, bool, type(None)})


class EpisodeState(StrEnum):
    """How an episode ended."""

    SCORED = "scored"
    """The environment gave a verdict that the settings accept."""
    ERRORED = "errored"
    """No verdict; cause and message say why."""
    CANCELLED = "cancelled"
    """A person or a shutdown ended it before there was a verdict."""


@dataclass(frozen=True)
class View:
    """What a policy may see before it acts."""

    observation: dict[str, Any]
    number: int
    """Of the step to come, from 1."""
    rejection: str = ""
    """Why the action before was not sent; empty if it was."""
    schema: Mapping[str, Any] | None = None
    """Of the server's actions."""
    tools: Sequence[Mapping[str, Any]] = ()
    """What a server of tools lists, where it was asked."""


Action = Mapping[str, Any] | str
"""A JSON object; or a text that was meant as one, which is rejected with that reason."""
Policy = Callable[[View], "Awaitable[Actions] | Actions"]
Actions = Action | Sequence[Action] | None
"""One action, several of one model turn (sent until one ends the episode), or None to stop."""


@dataclass(frozen=True)
class EpisodeEvent:
    """Something that happened. `kind` decides the fields of `payload`, all JSON.

    waiting {waited_s, active, maximum}; reset {observation, size_bytes, sha256, is_shortened};
    action {step, action, size_chars}; rejected {step, action, reason}; step {step, observation,
    reward, done, size_bytes, sha256, is_shortened, tool_error}; not_sent {actions}; final_state
    {scores, and state or error where it was asked for}.
    """

    kind: str
    payload: dict[str, Any]


Hook = Callable[[EpisodeEvent], Awaitable[None]]


@dataclass(frozen=True)
class EpisodeResult:
    """The end of an episode."""

    state: EpisodeState
    cause: Cause | None
    message: str
    reward: float | None
    """A finite number if scored, else None."""
    n_steps: int
    is_truncated: bool = False
    note: str = ""
    claimed_reward: float | None = None
    """A number that the environment gave and that is not used."""
    raw: str = ""
    """What the server sent last, shortened, where it explains an error; foreign text."""


@dataclass
class _Progress:
    """Where the episode stands; read when it is interrupted."""

    at: str = "before it started"
    rewards: list[float | None] = field(default_factory=list)
    has_ended: bool = False
    """The environment has ended the episode: its verdict is here and must not be lost."""
    verdict: EpisodeResult | None = None
    scores: Mapping[str, Any] = field(default_factory=dict)
    """Of its own rubric, by name, as the last observation reports them."""


async def run_episode(
    base_url: str,
    policy: Policy,
    settings: EpisodeSettings | None = None,
    *,
    reset: Mapping[str, Any] | None = None,
    hook: Hook | None = None,
    cancel: asyncio.Event | None = None,
    cancelled_by: str = "a person",
    verifier_files: Sequence[Path] = (),
    lists_tools: bool = False,
    reads_state: bool = False,
) -> EpisodeResult:
    """One episode at `base_url`. Foreign faults become the result; see the module's text.

    `cancel`: set it to end the episode; a verdict that has arrived stays. Cancelling the task
    closes the connection and passes through. `verifier_files`: beside those of the settings.
    `lists_tools`: ask a server of tools for them after the reset. `reads_state`: ask for the final
    state once the episode has its verdict, and tell it to the hook; the policy never sees it.
    """
    progress = _Progress()
    body = asyncio.ensure_future(
        _drive(
            base_url,
            policy,
            settings or EpisodeSettings(),
            dict(reset or {}),
            hook,
            [*verifier_files, *map(Path, (settings or EpisodeSettings()).verifier_files)],
            progress,
            lists_tools,
            reads_state,
        )
    )
    watch = asyncio.ensure_future(cancel.wait()) if cancel is not None else None
    try:
        await asyncio.wait(
            [body] if watch is None else [body, watch], return_when=asyncio.FIRST_COMPLETED
        )
        if not body.done():
            if not progress.has_ended:
                body.cancel()
            await asyncio.wait([body])
    finally:
        for task in (body, watch):
            if task is not None and not task.done():
                task.cancel()
        if not body.done():
            await asyncio.wait([body])
    if progress.verdict is not None:
        return progress.verdict
    if body.cancelled():
        return EpisodeResult(
            EpisodeState.CANCELLED,
            Cause.CANCELLED,
            f"Cancelled by {cancelled_by} {progress.at}. No score.",
            reward=None,
            n_steps=len(progress.rewards),
        )
    return body.result()


async def _drive(
    base_url: str,
    policy: Policy,
    settings: EpisodeSettings,
    reset: dict[str, Any],
    hook: Hook | None,
    verifier_files: Sequence[Path],
    progress: _Progress,
    lists_tools: bool,
    reads_state: bool,
) -> EpisodeResult:
    digests = await asyncio.to_thread(_digests, verifier_files) if verifier_files else {}

    async def tell(kind: str, **payload: Any) -> None:
        if hook is not None:
            await hook(EpisodeEvent(kind, payload))

    async def waiting(state: Waiting) -> None:
        await tell("waiting", waited_s=state.waited_s, active=state.active, maximum=state.maximum)

    try:
        async with EpisodeSession.open(base_url, settings, on_waiting=waiting) as session:
            observation = await session.reset(**reset)
            await tell("reset", **_shown(observation))
            tools = await session.list_tools() if lists_tools else []
            score = await _steps(session, policy, settings, observation, progress, tell, tools)
            changed = await asyncio.to_thread(_changed, digests) if digests else ""
            if changed:
                raise EpisodeError(
                    Cause.VERIFIER_TAMPERED,
                    f"{changed} was changed during the episode; its reward of {score.value!r} is "
                    "not used. No score.",
                    claimed_reward=score.value,
                )
            found = await _final_state(session) if reads_state else {}
            if found or progress.scores:
                await tell("final_state", scores=progress.scores, **found)
            progress.verdict = EpisodeResult(
                EpisodeState.SCORED,
                None,
                "",
                reward=score.value,
                n_steps=len(progress.rewards),
                is_truncated=score.is_truncated,
                note=score.note,
            )
    except EpisodeError as exc:
        progress.verdict = EpisodeResult(
            EpisodeState.ERRORED,
            exc.cause,
            exc.message,
            reward=None,
            n_steps=len(progress.rewards),
            claimed_reward=exc.claimed_reward,
            raw=exc.raw,
        )
    return progress.verdict


async def _final_state(session: EpisodeSession) -> dict[str, Any]:
    """{"state"} or {"error"}: a verdict that is here is not lost for want of a report."""
    try:
        return {"state": await session.state()}
    except EpisodeError as exc:
        return {"error": exc.message}


async def _steps(
    session: EpisodeSession,
    policy: Policy,
    settings: EpisodeSettings,
    first: Observation,
    progress: _Progress,
    tell: Callable[..., Awaitable[None]],
    tools: Sequence[Mapping[str, Any]],
) -> Score:
    """Act until the episode ends, the limit is reached or the policy stops."""
    observation, rejection, ask = first, "", _asker(policy)
    while len(progress.rewards) < settings.max_steps:
        number = len(progress.rewards) + 1
        progress.at = f"after step {number - 1}" if number > 1 else "before step 1"
        view = View(observation.fields, number, rejection, session.schema, tools)
        turn = await ask(view)
        if turn is None:
            return score_of(progress.rewards, done=False, settings=settings, has_stopped=True)
        actions = [turn] if isinstance(turn, Mapping | str) else list(turn)
        rejection = ""
        for position, action in enumerate(actions):
            if len(progress.rewards) >= settings.max_steps:
                await tell("not_sent", actions=[_kept(a) for a in actions[position:]])
                break
            outcome, rejection = await _one(session, action, progress, tell)
            if outcome is None:
                break
            observation = outcome.observation
            if outcome.done:
                score = score_of(progress.rewards, done=True, settings=settings)
                if actions[position + 1 :]:
                    await tell("not_sent", actions=[_kept(a) for a in actions[position + 1 :]])
                return score
    return score_of(progress.rewards, done=False, settings=settings)


async def _one(
    session: EpisodeSession,
    action: Action,
    progress: _Progress,
    tell: Callable[..., Awaitable[None]],
) -> tuple[StepOutcome | None, str]:
    """Send one action: its outcome, or None and the reason why it was not sent."""
    number = len(progress.rewards) + 1
    progress.at = f"during step {number}"
    kept = _kept(action)
    # Before it is sent: the action in flight is what explains a server that died.
    await tell("action", step=number, action=kept, size_chars=_size_chars(action))
    try:
        outcome = await session.step(action)
    except ActionRejectedError as exc:
        await tell("rejected", step=number, action=kept, reason=str(exc))
        return None, str(exc)
    progress.rewards.append(outcome.reward)
    progress.has_ended = outcome.done
    progress.scores = reported_scores(outcome.observation.metadata)
    progress.at = f"after step {number}"
    await tell(
        "step",
        step=number,
        reward=outcome.reward,
        done=outcome.done,
        tool_error=_tool_error(outcome.observation.fields),
        **_shown(outcome.observation),
    )
    return outcome, ""


def _asker(policy: Policy) -> Callable[[View], Awaitable[Actions]]:
    """The policy as a coroutine: an ordinary function runs in a thread."""
    is_asynchronous = inspect.iscoroutinefunction(policy) or inspect.iscoroutinefunction(
        getattr(policy, "__call__", None)  # noqa: B004 (an object with an async __call__)
    )

    async def ask(view: View) -> Actions:
        answer = policy(view) if is_asynchronous else await asyncio.to_thread(policy, view)
        return await answer if inspect.isawaitable(answer) else answer

    return ask


def _shown(observation: Observation) -> dict[str, Any]:
    return {
        "observation": observation.fields,
        "size_bytes": observation.size_bytes,
        "sha256": observation.sha256,
        "is_shortened": observation.is_shortened,
    }


def _kept(action: Action) -> dict[str, Any]:
    """A copy for the trace, texts shortened and marked with their full size; always JSON."""
    if isinstance(action, str):
        return {"text": plain(action, ACTION_KEPT_CHARS)}
    if len(action) <= 16 and all(
        type(value) in _PLAIN and (type(value) is not str or len(value) < 256)
        for value in action.values()
    ):
        return dict(action)  # as most are: nothing to shorten
    try:
        kept = shortened(dict(action), ACTION_KEPT_CHARS)[0]
        json.dumps(kept, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return {"unsendable": plain(repr(action), ACTION_KEPT_CHARS)}
    return kept


def _size_chars(action: Action) -> int:
    if isinstance(action, str):
        return len(action)
    return sum(len(v) if isinstance(v, str) else len(repr(v)) for v in action.values())


def _tool_error(fields: Mapping[str, Any]) -> str:
    """Text of a tool's failure: MCP environments report it inside a normal observation."""
    error = fields.get("error")
    if "tool_name" in fields and isinstance(error, dict):
        return plain(f"{error.get('error_type', 'error')}: {error.get('message', '')}")
    return ""


def _digests(paths: Sequence[Path]) -> dict[Path, str]:
    return {path: _digest(path) for path in paths}


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except FileNotFoundError:
        return "absent"


def _changed(digests: Mapping[Path, str]) -> str:
    """Name of the first file that is not as it was; empty if all are."""
    return next((path.name for path, was in digests.items() if _digest(path) != was), "")
