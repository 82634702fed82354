"""The model's side of a rollout: what it has been told and what it said.

With our model server the conversation is kept as token ids. Sampled ids are appended as they came
and never encoded again; between two actions only the bridge (end of turn, observation, start of the
next turn) is encoded, each piece with its kind. So the ids that are trained on are the ids that the
model saw.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.agents.client import ChatModel, LocalModel
from orchestrator.agents.types import Completion, Message, Sampling, Segment, TokenTrack


class TokenConversation:
    """Token-exact; one track, because every prompt extends the one before."""

    def __init__(self, model: LocalModel, sampling: Sampling) -> None:
        self._model = model
        self._sampling = sampling
        self._track = TokenTrack()
        self._ended_turn = True

    async def start(self, messages: Sequence[Message]) -> None:
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

    def tracks(self) -> list[TokenTrack]:
        return [self._track] if self._track.logprobs else []


class ChatConversation:
    """Text only; the endpoint applies its own template."""

    def __init__(self, model: ChatModel, sampling: Sampling) -> None:
        self._model = model
        self._sampling = sampling
        self._messages: list[Message] = []

    async def start(self, messages: Sequence[Message]) -> None:
        self._messages = list(messages)

    async def act(self, *, seed: int) -> Completion:
        completion = await self._model.complete(self._messages, self._sampling, seed=seed)
        self._messages.append({"role": "assistant", "content": completion.text})
        return completion

    async def observe(self, segments: Sequence[Segment]) -> None:
        text = "".join(segment.text for segment in segments)
        self._messages.append({"role": "user", "content": text})

    def tracks(self) -> list[TokenTrack]:
        return []
