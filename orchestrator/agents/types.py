"""Values that pass between the agent loop and model clients. No Django."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

Message = dict[str, str]


@dataclass(frozen=True)
class Segment:
    """A piece of an observation: what it is decides whether it may be trained on."""

    kind: str
    """env_output, warning or scaffold."""
    text: str


@dataclass(frozen=True)
class Sampling:
    temperature: float = 0.0
    max_tokens: int = 32
    """Per action."""
    stop: tuple[str, ...] = ("\n",)


@dataclass(frozen=True)
class Completion:
    """One answer of a model."""

    text: str
    finish_reason: str
    tokens_in: int
    tokens_out: int
    latency_s: float
    token_ids: tuple[int, ...] = ()
    """Empty when the endpoint does not give them."""
    logprobs: tuple[float, ...] = ()
    """Log-probabilities at the sampling temperature, one per token id."""
    ended_turn: bool = True
    """The last token is the template's end of turn (otherwise a stop string or the length limit).
    """
    weight_version: str = ""


@dataclass
class TokenTrack:
    """Tokens as the model saw and sampled them; one track is one training row."""

    ids: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    """Of the action tokens, in order."""
    weight_version: str = ""

    def extend(self, ids: Sequence[int], kinds: Sequence[str]) -> None:
        if len(ids) != len(kinds):
            raise ValueError(f"{len(ids)} token ids but {len(kinds)} kinds")
        self.ids.extend(ids)
        self.kinds.extend(kinds)


class Conversation(Protocol):
    """A model's side of one rollout."""

    async def start(self, messages: Sequence[Message]) -> None: ...

    async def act(self, *, seed: int) -> Completion: ...

    async def observe(self, segments: Sequence[Segment]) -> None: ...

    def tracks(self) -> list[TokenTrack]: ...
