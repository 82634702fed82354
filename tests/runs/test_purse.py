"""What a capped run may call its model for: the cap holds whatever runs side by side."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from optimizer.harness import Message
from optimizer.models import Budget, SearchState
from orchestrator.agents.errors import ModelError
from orchestrator.agents.types import Completion, Function, Segment, TokenTrack
from orchestrator.runs.models import Rollout
from orchestrator.runs.purse import CAUSE, CappedConversation, RunPurse, purse_of
from orchestrator.searches.services import resume_search, set_budget
from orchestrator.searches.settings import BudgetSettings
from tests.base import People
from tests.climbs.ladder import follows_demonstrations
from tests.runs.conftest import MakeModel
from tests.searches.build import make_search, work
from tests.web.build import make_run


@dataclass
class Talk:
    """A conversation whose model takes its time and, at most, what it may."""

    draw: random.Random
    max_tokens: int
    taken: list[int]
    text: int = 0
    asked: int = 0
    together: list[int] = field(default_factory=lambda: [0])
    """Calls under way in all conversations."""

    async def takes_functions(self) -> bool:
        return False

    async def start(self, messages: Sequence[Message], functions: Sequence[Function] = ()) -> None:
        self.text = sum(len(m["content"]) for m in messages)

    async def act(self, *, seed: int) -> Completion:
        self.asked += 1
        for _ in range(self.draw.randrange(4)):
            await asyncio.sleep(0)
        read, said = self.text // 2, self.draw.randint(1, self.max_tokens)
        self.taken.append(read + said)
        return Completion(
            text="x", tokens_in=read, tokens_out=said, finish_reason="stop", latency_s=0.0
        )

    async def observe(self, segments: Sequence[Segment]) -> None:
        self.text += sum(len(s.text) for s in segments)

    async def observe_calls(self, answers: Sequence[Sequence[Segment]]) -> None: ...

    def tracks(self) -> list[TokenTrack]:
        return []


async def converse(talk: Talk, purse: RunPurse, turns: int) -> bool:
    """Whether it came to its end."""
    capped = CappedConversation(talk, purse, talk.max_tokens, price_in=1.0, price_out=2.0)
    await capped.start([{"role": "user", "content": "y" * 100}])
    for turn in range(turns):
        try:
            await capped.act(seed=turn)
        except ModelError as exc:
            return exc.cause != CAUSE
        await capped.observe([Segment("env_output", "z" * 40)])
    return True


@pytest.mark.parametrize("seed", range(6))
def test_the_cap_holds_whatever_runs_side_by_side(seed: int) -> None:
    draw, taken = random.Random(seed), list[int]()
    cap = draw.randint(500, 6_000)
    purse = RunPurse({"tokens": cap})

    async def all_of_them() -> list[bool]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(converse(Talk(draw, 50, taken), purse, turns=5))
                for _ in range(12)
            ]
        return [task.result() for task in tasks]

    done = asyncio.run(all_of_them())
    assert sum(taken) <= cap
    assert purse.left["tokens"] == cap - sum(taken)
    assert all(done) == (len(taken) == 60)


def test_a_cap_of_dollars_holds_too() -> None:
    taken: list[int] = []
    purse = RunPurse({"micro_usd": 900})
    assert not asyncio.run(converse(Talk(random.Random(1), 50, taken), purse, turns=50))
    assert 0 <= purse.left["micro_usd"] < 900


def test_a_call_that_may_fit_later_waits_for_the_others() -> None:
    """Together they hold more than there is, one after the other they take less."""
    taken: list[int] = []
    purse = RunPurse({"tokens": 700})

    async def three() -> list[bool]:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(converse(Talk(random.Random(i), 50, taken), purse, turns=1))
                for i in range(3)
            ]
        return [task.result() for task in tasks]

    assert asyncio.run(three()) == [True, True, True]


@pytest.mark.django_db
def test_a_run_that_nobody_has_capped_has_no_purse(people: People) -> None:
    assert purse_of(make_run(people.project)) is None


@pytest.mark.django_db(transaction=True)
def test_a_search_never_takes_more_tokens_than_its_cap(
    people: People, fault_url: str, make_model: MakeModel
) -> None:
    """It pauses, says why, and goes on with a larger cap; nothing that was cut off is a zero."""
    model = make_model(follows_demonstrations)
    search = make_search(
        people,
        base_url=fault_url,
        model_url=model.url,
        budget={"rollouts": 90, "tokens": 45_000},
    )
    work()
    search.refresh_from_db()
    budget = Budget.objects.get(scope=f"search:{search.pk}", unit="tokens")
    assert search.state == SearchState.PAUSED
    assert "agent budget of" in search.error
    assert 0 < budget.used <= budget.cap
    assert not Rollout.objects.filter(cause=CAUSE, score__isnull=False).exists()
    set_budget(
        actor=people.editor,
        search=search,
        budget=BudgetSettings(rollouts=90, tokens=9_000_000),
    )
    resume_search(actor=people.editor, search=search)
    work()
    search.refresh_from_db()
    assert search.state == SearchState.AWAITING_APPROVAL, search.error
