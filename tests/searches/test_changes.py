"""Changes to a search that is under way, or has waited for a person."""

from __future__ import annotations

import pytest

from optimizer.edits import Edit, Op
from optimizer.models import Budget, Comparison, Search, SearchState
from orchestrator.runs.models import Rollout, Run
from orchestrator.searches.rounds import sifted
from orchestrator.searches.rows import rows_of
from orchestrator.searches.services import (
    SearchRefused,
    approve,
    decline,
    nudge,
    resume_search,
    set_budget,
)
from orchestrator.searches.settings import BudgetSettings, SearchSettings
from tests.base import People
from tests.searches.build import told
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


def test_a_release_names_the_certificate_of_what_is_released(people: People) -> None:
    """The last of several need not be the one."""
    start(people)
    play()
    first = Comparison.objects.get(method="e_process")
    another = Comparison.objects.get(pk=first.pk)
    another.pk, another.details = None, {"number": 2, "harness": "another"}
    another.save()
    assert approve(actor=people.editor, search=Search.objects.get()).certificate == first


def test_words_of_people_lose_what_no_database_keeps(people: People) -> None:
    search = start(people)
    play()
    assert nudge(actor=people.editor, search=search, text="a\x00b\ud800").text == "ab?"
    decline(actor=people.editor, search=search, note="too\x00 long")
    assert any("too long" in payload["text"] for payload in told(search, "decision"))


def test_a_preflight_that_found_the_model_away_is_repeated_on_resume(people: People) -> None:
    search = start(people)
    for _ in range(2):
        play(lambda harness, rollout: None)
        search.refresh_from_db()
        assert search.state == SearchState.FAILED
        assert "The model was away" in search.error
        resume_search(actor=people.editor, search=search)
    play()
    search.refresh_from_db()
    assert search.state == SearchState.AWAITING_APPROVAL
    spent = Budget.objects.get(scope=f"search:{search.pk}", unit="rollouts")
    assert spent.used == Rollout.objects.count() <= spent.cap
    shares = Budget.objects.filter(scope__startswith=f"search:{search.pk}/", unit="rollouts")
    assert all(share.used <= share.cap for share in shares)
    assert {row.phase for row in rows_of(search)} == {"evidence", "screen", "race", "certify"}


def test_an_answer_that_is_no_text_is_refused_in_the_form_that_agents_give_it(
    people: People,
) -> None:
    search = start(people)
    assert search.environment_version is not None
    search.environment_version.tasks.filter(key="select-0").update(
        spec={"answer": {"city": "Reykjavik", "total": 1234567}}
    )
    text = 'Answer {"city": "Reykjavik", "total": 1234567} where you are not sure.'
    edit = Edit(Op.APPEND, "instructions.md", content=text, operator="test")
    kept, refused = sifted(search, SearchSettings.from_json(search.settings), [edit])
    assert not kept
    assert len(refused) == 1
