"""What a grader may look at: a server, its kind, a few exercises; and how it plays an episode.

All episodes go through `EpisodeSession`, so that a check meets the environment as a run does.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.environments.actions import action_schema
from orchestrator.environments.conformance.comparing import comparable
from orchestrator.environments.conformance.probing import LIST_TOOLS, ActionMaker
from orchestrator.environments.connection import Address
from orchestrator.environments.episode import Action
from orchestrator.environments.errors import ActionRejectedError, EpisodeError
from orchestrator.environments.kinds.acting import interface_of
from orchestrator.environments.kinds.base import Kind
from orchestrator.environments.score import score_of
from orchestrator.environments.session import EpisodeSession, EpisodeSettings, Observation

SEED = 7
OTHER_SEEDS = (8, 9)
MAX_STEPS = 8
"""Of an episode that a grader plays without a reference."""


@dataclass(frozen=True)
class Secret:
    """Something that solves a task. Never shown; `where` and its length are."""

    where: str
    text: str


@dataclass(frozen=True)
class Exercise:
    """A task as a grader sees it."""

    key: str
    prompt: str
    reset: Mapping[str, Any] = field(default_factory=dict)
    secrets: tuple[Secret, ...] = ()
    reference: tuple[str, ...] = ()
    """What the author's agent said, turn by turn."""
    settings: EpisodeSettings = field(default_factory=EpisodeSettings)


@dataclass(frozen=True)
class Subject:
    """An environment under check."""

    base_url: str
    kind: Kind
    exercises: tuple[Exercise, ...]
    """At least one."""
    capacity: int | None = None
    """Slots that somebody declared; None: nobody said."""
    is_shared: bool = False
    """Somebody else's server: it is not filled up."""

    @property
    def first(self) -> Exercise:
        return self.exercises[0]

    @property
    def address(self) -> Address:
        return Address(self.base_url)

    @asynccontextmanager
    async def episode(
        self, exercise: Exercise, seed: int = SEED
    ) -> AsyncIterator[tuple[EpisodeSession, Observation]]:
        """A started episode. `EpisodeError` if it does not start."""
        async with EpisodeSession.open(self.base_url, exercise.settings) as session:
            yield session, await session.reset(**{"seed": seed, **exercise.reset})

    async def schema(self) -> Mapping[str, Any] | None:
        """The server's schema of actions, or None if it publishes none that can be used."""
        found = await action_schema(
            self.address,
            timeout_s=self.first.settings.connect_timeout_s,
            headers=self.first.settings.headers,
        )
        return found.schema if found else None

    async def maker(self) -> ActionMaker:
        """Makes actions; for MCP environments with their list of tools."""
        maker = ActionMaker(await self.schema())
        if not maker.calls_tools:
            return maker
        async with self.episode(self.first) as (session, _):
            listed = (await session.step(LIST_TOOLS)).observation.fields.get("tools")
        tools = [t for t in listed or () if isinstance(t, Mapping) and "name" in t]
        return replace(maker, tools=tuple(tools))

    def script(self, exercise: Exercise, maker: ActionMaker) -> list[Action]:
        """Actions to repeat: the reference's, else a few that say something short."""
        if exercise.reference:
            return [self.read(maker, reply) for reply in exercise.reference]
        made = list(maker.with_text("probe"))[:2]
        return [*made, *made[:1]] or [self.read(maker, "probe")]

    def read(self, maker: ActionMaker, reply: str) -> Action:
        """An agent's reply as an action, as a run would read it."""
        return interface_of(self.kind, maker.schema, maker.tools).read(reply)

    async def play(
        self, exercise: Exercise, actions: Iterable[Action], *, seed: int = SEED
    ) -> Played:
        """An episode with these actions, at most `MAX_STEPS` unless it is a reference.

        An action that does not fit is left out. A fault is the result, not an exception.
        """
        played = Played(exercise)
        limit = max(MAX_STEPS, len(exercise.reference))
        try:
            async with self.episode(exercise, seed) as (session, first):
                played.first, played.metadata = first.fields, first.metadata
                with contextlib.suppress(EpisodeError):  # `state_contract` asks for it
                    played.first_state = await session.state()
                for action in list(actions)[:limit]:
                    if await played.step(session, action):
                        break
        except EpisodeError as exc:
            played.error = exc
        return played


@dataclass
class Played:
    """What came of an episode."""

    exercise: Exercise
    first: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    observations: list[dict[str, Any]] = field(default_factory=list)
    rewards: list[float | None] = field(default_factory=list)
    is_done: bool = False
    n_rejected: int = 0
    first_state: dict[str, Any] = field(default_factory=dict)
    """After the reset; empty where the server gives none."""
    error: EpisodeError | None = None

    async def step(self, session: EpisodeSession, action: Action) -> bool:
        """Takes one action; whether it ended the episode. `EpisodeError`."""
        try:
            outcome = await session.step(action)
        except ActionRejectedError:
            self.n_rejected += 1
            return False
        self.observations.append(outcome.observation.fields)
        self.rewards.append(outcome.reward)
        self.is_done = outcome.done
        return outcome.done

    @property
    def has_started(self) -> bool:
        return self.error is None or bool(self.first) or bool(self.observations)

    @property
    def trace(self) -> dict[str, Any]:
        """What must be the same when the same is played again."""
        return {
            "reset": comparable(self.first),
            "observations": [comparable(o) for o in self.observations],
            "rewards": self.rewards,
            "done": self.is_done,
        }

    @property
    def earned(self) -> float:
        """The score; where there is none, the best that a single step paid, at least 0."""
        if self.score is not None:
            return self.score
        return max((r for r in self.rewards if r is not None), default=0.0)

    @property
    def score(self) -> float | None:
        """By the version's own rule; None where it gives none."""
        settings = replace(self.exercise.settings, reward_range=None, truncation_reward=None)
        try:
            return score_of(self.rewards, done=self.is_done, settings=settings).value
        except EpisodeError:
            return None


def texts_of(value: object) -> list[str]:
    """The texts and numbers inside a secret field."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    if isinstance(value, bool) or value is None:
        return []
    if isinstance(value, int | float):
        return [json.dumps(value)]
    items: Sequence[object] = ()
    if isinstance(value, Mapping):
        items = list(value.values())
    elif isinstance(value, list | tuple):
        items = value
    return [text for item in items for text in texts_of(item)]
