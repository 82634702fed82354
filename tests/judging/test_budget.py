"""What judges of a project may take in a day: exact caps, waits near them, errors beyond."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TransactionTestCase

from optimizer.models import Budget
from orchestrator.judging.budget import (
    DailyPurse,
    caps_of,
    most_of,
    set_limits,
    spending_today,
)
from orchestrator.judging.judges import PurseHeld
from orchestrator.judging.models import JudgeCall, JudgeLimits
from orchestrator.judging.services import grading_services
from orchestrator.projects.models import Project
from rubrics.codec import from_json
from rubrics.errors import CriterionFailed
from rubrics.grade import grade_async
from rubrics.types import State, Verdict
from tests.base import People, make_project
from tests.doubles.model_server import Asked, Raw, ScriptedModel
from tests.judging.test_judges import endpoint, project, question, says
from tests.rubrics.build import transcript

__all__ = ["project"]
pytestmark = pytest.mark.django_db(transaction=True)


def verdicts(project: Project, n: int = 1) -> list[Verdict]:
    """Of `n` criteria that ask different questions at the same time."""
    criteria = [
        {"id": f"c{i}", "kind": "judge", "params": {"question": f"Is it {i}?", "max_tokens": 100}}
        for i in range(n)
    ]

    async def go() -> list[Verdict]:
        async with grading_services(project.pk) as services:
            spec = from_json({"criteria": criteria})
            return await grade_async(spec, transcript(), services=services)

    return asyncio.run(go())


def limit(project: Project, *, usd: float | None = None, tokens: int | None = None) -> None:
    owner = project.memberships.get(role="admin").user
    set_limits(actor=owner, project=project, usd_per_day=usd, tokens_per_day=tokens)


@pytest.fixture
def owned(people: People) -> Project:
    return people.project


def test_without_a_cap_there_is_no_ledger(owned: Project) -> None:
    with ScriptedModel(says()) as model:
        endpoint(owned, model)
        assert verdicts(owned)[0].value == 1.0
    assert not caps_of(owned.pk) and not Budget.objects.exists()
    call = JudgeCall.objects.get()
    assert spending_today(owned.pk).tokens == call.tokens_in + call.tokens_out > 0


def test_over_the_cap_is_an_error_that_names_it_and_what_is_left(owned: Project) -> None:
    limit(owned, tokens=50)
    with ScriptedModel(says()) as model:
        endpoint(owned, model)
        (found,) = verdicts(owned)
        assert not model.asked
    assert (found.state, found.value) == (State.ERRORED, None)
    assert "may take 50 tokens a day; 50 are left" in found.reason
    assert "Settings, Models" in found.reason


def test_a_cap_in_dollars_counts_the_endpoints_prices(owned: Project) -> None:
    limit(owned, usd=0.000001)
    with ScriptedModel(says()) as model:
        row = endpoint(owned, model)
        assert "may take $0.00 a day" in verdicts(owned)[0].reason
        row.price_in_usd_per_mtok = 0.0
        row.save()
        assert verdicts(owned)[0].value == 1.0  # what costs nothing passes


def test_requests_near_the_cap_wait_for_those_on_their_way(owned: Project) -> None:
    """Room for the upper bound of two: six at once all pass, since each takes much less."""
    with ScriptedModel(says()) as model:
        row = endpoint(owned, model)
        most = most_of(question(), row)["tokens"]
        limit(owned, tokens=3 * most)
        found = verdicts(owned, 6)
    assert [v.value for v in found] == [1.0] * 6
    budget = Budget.objects.get()
    spent = sum(c.tokens_in + c.tokens_out for c in JudgeCall.objects.all())
    assert (budget.used, budget.reserved) == (spent, 0)
    assert spending_today(owned.pk).tokens == spent


def test_a_reply_that_was_read_before_costs_nothing(owned: Project) -> None:
    with ScriptedModel(says()) as model:
        endpoint(owned, model)
        verdicts(owned)
        limit(owned, tokens=1)
        assert verdicts(owned)[0].value == 1.0


def test_what_was_spent_before_the_cap_counts(owned: Project) -> None:
    with ScriptedModel(says()) as model:
        row = endpoint(owned, model)
        verdicts(owned)
        spent = spending_today(owned.pk).tokens
        limit(owned, tokens=most_of(question(), row)["tokens"] * 2)
        assert [v.value for v in verdicts(owned, 2)] == [1.0, 1.0]
        assert Budget.objects.get().used > spent


def test_a_request_that_failed_frees_what_was_set_aside(owned: Project) -> None:
    limit(owned, tokens=10**6)
    with ScriptedModel(lambda asked: Raw(400, '{"error": {"message": "no"}}')) as model:
        endpoint(owned, model, supports_schema=False)
        assert verdicts(owned)[0].state is State.ERRORED
    budget = Budget.objects.get()
    assert (budget.used, budget.reserved) == (0, 0)


def test_a_correction_that_the_cap_refuses_keeps_the_replies(owned: Project) -> None:
    def wordy(asked: Asked) -> str:
        return "I think it is fine. " * 200

    with ScriptedModel(wordy) as model:
        endpoint(owned, model)
        limit(owned, tokens=1)
        needed = re.search(r"may take ([\d,]+)\.", verdicts(owned)[0].reason)
        assert needed is not None
        limit(owned, tokens=int(needed.group(1).replace(",", "")))
        (found,) = verdicts(owned)
        assert len(model.asked) == 1
    call = JudgeCall.objects.get()
    assert found.state is State.ERRORED and "tokens a day" in found.reason
    assert (call.reason_kind, len(call.replies), call.tokens_out > 0) == ("budget", 1, True)


def test_caps_are_set_by_admins_and_hold_from_then_on(people: People) -> None:
    with pytest.raises(PermissionDenied):
        set_limits(
            actor=people.editor, project=people.project, usd_per_day=1.0, tokens_per_day=None
        )
    limit(people.project, tokens=10)
    limit(people.project, tokens=10**6, usd=2.0)
    assert caps_of(people.project.pk) == {"tokens": 10**6, "micro_usd": 2_000_000}


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 40), st.booleans()), max_size=14)


class Courses(TransactionTestCase):
    @settings(max_examples=6, deadline=None, phases=[Phase.generate])
    @given(st.integers(0, 4), STEPS)
    def test_no_course_of_requests_passes_the_cap(
        self, room: int, steps: list[tuple[int, int, bool]]
    ) -> None:
        project = make_project()
        row = endpoint_of(project)
        most = most_of(question(), row)["tokens"]
        JudgeLimits.objects.create(project=project, tokens_per_day=room * most)
        purse = DailyPurse(project.pk)
        open_keys: dict[str, int] = {}
        used = 0
        for i, (slot, percent, ends) in enumerate(steps):
            key = f"k{slot}"
            if key in open_keys:
                if ends:
                    spent = most * percent // 100
                    purse.settle(key, 0.0, spent)
                    used += spent
                    del open_keys[key]
                continue
            fits = used + most * (len(open_keys) + 1) <= room * most
            try:
                purse.reserve(key, question(repeat=i), row)
            except PurseHeld:
                assert not fits and open_keys and used + most <= room * most
            except CriterionFailed:
                assert not fits
            else:
                assert fits
                open_keys[key] = most
        budget = Budget.objects.filter(scope__startswith=f"judges:{project.pk}:").first()
        if budget is not None:
            assert (budget.used, budget.reserved) == (used, most * len(open_keys))


def endpoint_of(project: Project) -> Any:
    with ScriptedModel(says()) as model:
        return endpoint(project, model)
