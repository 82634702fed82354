"""The model's side of a rollout: what it has been told and what it said.

With our model server the conversation is kept as token ids. Sampled ids are appended as they came
and never encoded again; between two actions only the bridge (end of turn, observation, start of the
next turn) is encoded, each piece with its kind. So the ids that are trained on are the ids that the
model saw.

Functions are offered to models of other endpoints, where they take them. A call is answered by a
message of the role `tool`; each call gets exactly one, else the endpoint refuses the next request.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.agents.client import ChatModel, LocalModel
from orchestrator.agents.functions import FunctionSupport
from orchestrator.agents.types import (
    Completion,
    Function,
    FunctionCall,
    Message,
    Sampling,
    Segment,
    TokenTrack,
)

NOT_RUN = "(not run: an earlier call of the same reply ended it)"


class TokenConversation:
    """Token-exact; one track, because every prompt extends the one before."""

    def __init__(self, model: LocalModel, sampling: Sampling) -> None:
        self._model = model
        self._sampling = sampling
        self._track = TokenTrack()
        self._ended_turn = True

    async def takes_functions(self) -> bool:
        """Its actions are text: the ids that are trained on are those of the text."""
        return False

    async def start(self, messages: Sequence[Message], functions: Sequence[Function] = ()) -> None:
        ids, _ = await self._model.tokenize_messages(messages)
        # What precedes the first action is context: demonstrations are not the agent's doing.
        self._track.extend(ids, ["context"] * len(ids))

    async def act(self, *, seed: int) -> Completion:
        completion = await self._model.complete(self._track.ids, self._sampling, seed=seed)
        self._track.extend(completion.token_ids, ["action"] * len(completion.token_ids))
        self._track.logprobs.extend(completion.logprobs)
        self._track.weight_version = completion.weight_version
        self._ended_turn = completion.ended_turn
        return completion

    async def observe(self, segments: Sequence[Segment]) -> None:
        ids, kinds = await self._model.tokenize_bridge(
            ended_turn=self._ended_turn, segments=segments
        )
        self._track.extend(ids, kinds)

    async def observe_calls(self, answers: Sequence[Sequence[Segment]]) -> None:
        raise RuntimeError("functions were not offered")

    def tracks(self) -> list[TokenTrack]:
        return [self._track] if self._track.logprobs else []


class ChatConversation:
    """Text only; the endpoint applies its own template."""

    def __init__(
        self, model: ChatModel, sampling: Sampling, support: FunctionSupport | None = None
    ) -> None:
        self._model = model
        self._sampling = sampling
        self._support = support
        self._messages: list[Message] = []
        self._functions: Sequence[Function] = ()
        self._calls: tuple[FunctionCall, ...] = ()

    async def takes_functions(self) -> bool:
        return self._support is not None and await self._support.known()

    async def start(self, messages: Sequence[Message], functions: Sequence[Function] = ()) -> None:
        self._messages = list(messages)
        self._functions = tuple(functions)

    async def act(self, *, seed: int) -> Completion:
        completion = await self._model.complete(
            self._messages, self._sampling, seed=seed, functions=self._functions
        )
        self._calls = completion.calls
        message: Message = {"role": "assistant", "content": completion.text}
        if self._calls:
            message["content"] = completion.text or None
            message["tool_calls"] = [_as_said(call) for call in self._calls]
        self._messages.append(message)
        return completion

    async def observe(self, segments: Sequence[Segment]) -> None:
        self._messages.append({"role": "user", "content": _text(segments)})

    async def observe_calls(self, answers: Sequence[Sequence[Segment]]) -> None:
        for number, call in enumerate(self._calls):
            content = _text(answers[number]) if number < len(answers) else NOT_RUN
            self._messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    def tracks(self) -> list[TokenTrack]:
        return []


def _text(segments: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in segments)


def _as_said(call: FunctionCall) -> dict[str, Any]:
    """The call for the history. Templates parse the arguments; what is no JSON would end there."""
    try:
        read = json.loads(call.arguments, parse_constant=_refuse_constant)
        is_object = isinstance(read, dict)
    except (ValueError, RecursionError):
        is_object = False
    arguments = call.arguments if is_object else json.dumps({"unreadable": call.arguments[:2000]})
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
