"""Changes to a search that is under way, or has waited for a person."""

from __future__ import annotations

import pytest

from optimizer.models import Budget, SearchState
from orchestrator.runs.models import Rollout, Run
from orchestrator.searches.services import (
    SearchRefused,
    set_budget,
)
from orchestrator.searches.settings import BudgetSettings
from tests.base import People
from tests.searches.playing import play, start

pytestmark = pytest.mark.django_db


def test_a_cap_that_comes_later_counts_what_was_taken_before(people: People) -> None:
    search = start(people)
    play(until=lambda: Run.objects.filter(search_run__phase="certify").exists())
    with pytest.raises(SearchRefused, match="Pause the search and wait"):
        set_budget(actor=people.editor, search=search, budget=BudgetSettings(104, usd=5))
    play()
    search.refresh_from_db()
    assert search.state == SearchState.AWAITING_APPROVAL
    taken = Rollout.objects.count()
    with pytest.raises(SearchRefused, match="less than the agent has spent"):
        set_budget(actor=people.editor, search=search, budget=BudgetSettings(104, tokens=400))
    with pytest.raises(SearchRefused, match="Judges were not capped from the start"):
        set_budget(actor=people.editor, search=search, budget=BudgetSettings(104, judge_usd=1))
    for _ in range(2):  # taken away and set again it counts the same
        set_budget(actor=people.editor, search=search, budget=BudgetSettings(104, tokens=90_000))
        counts = Budget.objects.get(scope=f"search:{search.pk}", role="agent", unit="tokens")
        assert (counts.used, counts.cap) == (100 * taken, 90_000)
        parts = Budget.objects.filter(scope__startswith=f"search:{search.pk}/", unit="tokens")
        assert sum(part.used for part in parts) == 100 * taken
        set_budget(actor=people.editor, search=search, budget=BudgetSettings(104))
        assert not Budget.objects.filter(unit="tokens").exists()
