"""What the agents of one run may take, where somebody has capped it: tokens and dollars.

The run has set an amount aside in the ledger (`orchestrator.judging.accounts`); a call of the model
that might pass it is not made. A call that may fit once others have settled waits for them. What
cannot be called any more ends its rollout as errored, with the cap's name: it has no score, and
whoever asked for it may ask again with a larger cap.

A call is held at what it may take at most: a token of new text is at least a byte, and what the
model has read before is known from its last answer.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from django.db.models import Sum

from optimizer.harness import Message
from optimizer.models import SearchRun
from orchestrator.agents.errors import ModelError
from orchestrator.agents.types import Completion, Conversation, Function, Segment, TokenTrack
from orchestrator.judging import accounts
from orchestrator.judging.accounts import MICRO_USD, TOKENS
from orchestrator.runs.models import Rollout, Run

ROLE = "agent"
CAUSE = "budget_spent"
TURN_TOKENS = 64
"""Of the words that a chat template puts around a turn, and of rounding."""


@dataclass
class RunPurse:
    """Of one run, in one event loop. `left` by unit; a unit that is not capped is not in it."""

    left: dict[str, int]
    _held: dict[str, int] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def hold(self, most: Mapping[str, int]) -> None:
        """Raises ModelError: not even alone would it fit."""
        while True:
            short = [unit for unit, left in self.left.items() if most[unit] > left]
            if short:
                raise ModelError(_refusal(short[0], most[short[0]], self.left[short[0]]), CAUSE)
            if all(
                self._held.get(unit, 0) + most[unit] <= left for unit, left in self.left.items()
            ):
                for unit in self.left:
                    self._held[unit] = self._held.get(unit, 0) + most[unit]
                return
            # Others are on their way and settle below what they hold.
            self._changed.clear()
            await self._changed.wait()

    def settle(self, most: Mapping[str, int], taken: Mapping[str, int]) -> None:
        for unit in self.left:
            self._held[unit] -= most[unit]
            self.left[unit] -= taken.get(unit, 0)
        self._changed.set()


@dataclass
class CappedConversation:
    """A conversation whose calls are paid from a purse; see `orchestrator.agents.types`."""

    inner: Conversation
    purse: RunPurse
    max_tokens: int
    price_in: float
    """USD per million tokens."""
    price_out: float
    _read: int = 0
    """Tokens that the next prompt has at least: of the last one and its answer."""
    _new: int = 0
    """Bytes that came since."""

    async def takes_functions(self) -> bool:
        return await self.inner.takes_functions()

    async def start(self, messages: Sequence[Message], functions: Sequence[Function] = ()) -> None:
        offered = sum(len(json.dumps(function.as_json()).encode()) for function in functions)
        self._new = offered + sum(_size(m["content"]) for m in messages)
        await self.inner.start(messages, functions)

    async def act(self, *, seed: int) -> Completion:
        most = self._amounts(self._read + self._new, self.max_tokens)
        await self.purse.hold(most)
        taken: Mapping[str, int] = {}
        try:
            completion = await self.inner.act(seed=seed)
            taken = self._amounts(completion.tokens_in, completion.tokens_out)
        finally:
            self.purse.settle(most, taken)
        self._read, self._new = completion.tokens_in + completion.tokens_out, TURN_TOKENS
        return completion

    async def observe(self, segments: Sequence[Segment]) -> None:
        self._note(segments)
        await self.inner.observe(segments)

    async def observe_calls(self, answers: Sequence[Sequence[Segment]]) -> None:
        for segments in answers:
            self._note(segments)
        await self.inner.observe_calls(answers)

    def tracks(self) -> list[TokenTrack]:
        return self.inner.tracks()

    def _note(self, segments: Sequence[Segment]) -> None:
        self._new += sum(_size(segment.text) for segment in segments)

    def _amounts(self, tokens_in: int, tokens_out: int) -> dict[str, int]:
        usd = (tokens_in * self.price_in + tokens_out * self.price_out) / 1e6
        return {TOKENS: tokens_in + tokens_out, MICRO_USD: accounts.micro_usd(usd)}


def _size(text: str) -> int:
    return len(text.encode(errors="replace")) + TURN_TOKENS


def purse_of(run: Run) -> RunPurse | None:
    """None where nobody has capped the run. What earlier attempts at it took is gone."""
    asked = SearchRun.objects.filter(run=run).values_list("search_id", flat=True).first()
    if asked is None:
        return None
    held = accounts.held(scope=f"search:{asked}", role=ROLE, key=run.key or "")
    left = {unit: amount for unit, amount in held.items() if unit in (TOKENS, MICRO_USD)}
    if not left:
        return None
    totals = Rollout.everything.filter(run=run).aggregate(
        given=Sum("tokens_in"), taken=Sum("tokens_out"), usd=Sum("cost_usd")
    )
    spent = {
        TOKENS: (totals["given"] or 0) + (totals["taken"] or 0),
        MICRO_USD: math.ceil(1e6 * (totals["usd"] or 0.0)),
    }
    return RunPurse({unit: amount - spent[unit] for unit, amount in left.items()})


def _refusal(unit: str, most: int, left: int) -> str:
    need, rest = accounts.shown(unit, most), accounts.shown(unit, max(0, left))
    return (
        f"The budget allows no further call of the model: it may take {need}, and {rest} are left "
        "to this run. No score. Raise the cap and resume the search."
    )
