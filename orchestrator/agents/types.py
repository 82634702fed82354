"""Values that pass between the agent loop and model clients. No Django."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

Message = dict[str, Any]
"""Of OpenAI's chat protocol; `content` is text, or null beside `tool_calls`."""


@dataclass(frozen=True)
class Function:
    """A function that a model is offered."""

    name: str
    """Letters, digits, `_`, `-`; at most 64."""
    description: str
    parameters: Mapping[str, Any]
    """JSON schema."""

    def as_json(self) -> dict[str, Any]:
        return {
            "type": "function",
            "function": {
                "name": self.name,
                "description": self.description,
                "parameters": dict(self.parameters),
            },
        }


@dataclass(frozen=True)
class FunctionCall:
    """A function call as the model wrote it."""

    id: str
    name: str
    arguments: str
    """Meant as a JSON object, not checked."""


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
    top_p: float = 1.0
    """Below 1 for endpoints of others alone: ours samples from the whole distribution."""


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
    calls: tuple[FunctionCall, ...] = ()
    """Beside the text, from models that were offered functions."""


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

    async def takes_functions(self) -> bool:
        """Whether the model can be offered functions. May ask the model; raises ModelError."""

    async def start(
        self, messages: Sequence[Message], functions: Sequence[Function] = ()
    ) -> None: ...

    async def act(self, *, seed: int) -> Completion: ...

    async def observe(self, segments: Sequence[Segment]) -> None:
        """What a text reply brought."""

    async def observe_calls(self, answers: Sequence[Sequence[Segment]]) -> None:
        """What the function calls of the last completion brought, in their order."""

    def tracks(self) -> list[TokenTrack]: ...
