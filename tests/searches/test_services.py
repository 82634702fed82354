"""What people do to searches, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from optimizer.models import Budget, Candidate, Search, SearchState
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job
from orchestrator.runs.models import ENDED_RUN_STATES, Rollout, Run, RunState
from orchestrator.runs.services import cancel_run
from orchestrator.searches import releases, services
from orchestrator.searches.proposers import public_criteria
from orchestrator.searches.releases import ReleaseRefused
from orchestrator.searches.services import (
    SearchRefused,
    approve,
    cancel_search,
    decline,
    nudge,
    pause_search,
    resume_search,
    set_budget,
    start_search,
)
from orchestrator.searches.settings import BudgetSettings, SearchSettings
from tests.base import People
from tests.runs.drive import assert_gapless, make_harness
from tests.searches.build import told
from tests.searches.playing import make_form, nothing_helps, play, start

pytestmark = pytest.mark.django_db


def state_of(search: Search) -> str:
    return Search.objects.values_list("state", flat=True).get(pk=search.pk)


# --- starting -----------------------------------------------------------------------------------


def test_a_budget_below_one_pass_is_refused_with_the_number_that_would_do(people: People) -> None:
    with pytest.raises(SearchRefused, match=r"smaller than one pass") as caught:
        start(people, budget={"rollouts": 60})
    told_least = int(str(caught.value).rpartition("Allow at least ")[2].split(",")[0])
    assert not Search.objects.exists()
    start(people, budget={"rollouts": told_least})
    assert Search.objects.count() == 1


def test_pairs_that_can_certify_nothing_are_refused(people: People) -> None:
    with pytest.raises(SearchRefused, match="8 straight wins"):
        start(people, certify_pairs=7)


@pytest.mark.parametrize("split", ["train", "select", "test"])
def test_an_environment_without_a_split_is_refused(people: People, split: str) -> None:
    counts = {"train": 12, "select": 10, "test": 8} | {split: 0}
    with pytest.raises(SearchRefused, match=f"no (sealed )?{split} task"):
        start(people, make_form(people.project, counts))


def test_unknown_names_are_told(people: People) -> None:
    with pytest.raises(SearchRefused, match="horoscope"):
        start(people, proposers=["horoscope"])
    with pytest.raises(ValueError, match="engine is one of factorial"):
        SearchSettings.from_json({"engine": "best"})
    with pytest.raises(ValueError, match=r"rollout\b"):
        SearchSettings.from_json({"budget": {"rollout": 5}})
    with pytest.raises(SearchRefused, match="no criterion kindness"):
        start(people, safety=["kindness"])
    with pytest.raises(SearchRefused, match="Unknown operators: magic"):
        start(people, proposer_settings={"offline": {"operators": ["magic"]}})
    with pytest.raises(SearchRefused, match="no criterion kindness that an agent may know"):
        start(people, proposer_settings={"offline": {"criteria": ["kindness"]}})
    with pytest.raises(SearchRefused, match="engine_settings"):
        start(people, engine_settings={"speed": 3})


def test_operators_know_the_names_of_the_criteria_that_people_list(people: People) -> None:
    search = start(people)
    criteria = search.rubric_version.spec["criteria"] if search.rubric_version else []
    first = criteria[0]
    (known,) = public_criteria(search, [first["id"]])
    assert (known.id, known.text) == (first["id"], first.get("name") or first["id"])
    assert public_criteria(search, []) == []


def test_settings_come_back_from_json_as_they_were() -> None:
    settings = SearchSettings(models=(3, 4), budget=BudgetSettings(usd=2.5), safety=("a",))
    assert SearchSettings.from_json(settings.to_json()) == settings


def test_what_belongs_to_another_project_is_refused(people: People) -> None:
    other = make_form(people.project)
    foreign = people.stranger.memberships.get().project
    form = replace(other, seed_harness=make_harness(foreign))
    with pytest.raises(SearchRefused, match="seed harness is of another project"):
        start(people, form)


def test_only_editors_start_searches(people: People) -> None:
    form = make_form(people.project)
    for actor, refusal in ((people.member, PermissionDenied), (people.stranger, Http404)):
        with pytest.raises(refusal):
            start_search(actor=actor, project=people.project, form=form)


ACTIONS: list[Callable[..., Any]] = [
    pause_search,
    resume_search,
    cancel_search,
    approve,
    decline,
    lambda **who: nudge(text="look", **who),
    lambda **who: set_budget(budget=BudgetSettings(), **who),
]


@pytest.mark.parametrize("action", ACTIONS)
def test_only_editors_act_on_searches(people: People, action: Callable[..., Any]) -> None:
    search = start(people)
    for actor, refusal in ((people.member, PermissionDenied), (people.stranger, Http404)):
        with pytest.raises(refusal):
            action(actor=actor, search=search)
    assert state_of(search) == SearchState.QUEUED


# --- on the way ---------------------------------------------------------------------------------


def test_a_paused_search_lets_its_run_end_and_goes_on_from_there(people: People) -> None:
    search = start(people)
    play(until=lambda: Run.objects.filter(search_run__phase="screen").exists())
    pause_search(actor=people.editor, search=search)
    play()
    assert state_of(search) == SearchState.PAUSED
    n = Rollout.objects.count()
    assert not Run.objects.exclude(state=RunState.COMPLETED).exists()
    resume_search(actor=people.editor, search=search)
    play()
    assert state_of(search) == SearchState.AWAITING_APPROVAL
    assert Rollout.objects.count() > n
    states = [payload["state"] for payload in told(search, "search.state")]
    assert states == ["running", "paused", "running", "awaiting_approval"]
    assert_gapless()


def test_a_cancelled_search_ends_its_run_and_frees_what_it_held(people: People) -> None:
    search = start(people)
    play(until=lambda: Run.objects.filter(search_run__phase="screen").exists())
    cancel_search(actor=people.editor, search=search)
    play()
    assert state_of(search) == SearchState.CANCELLED
    assert Run.objects.filter(state=RunState.CANCELLED).count() == 1
    total = Budget.objects.get(scope=f"search:{search.pk}", unit="rollouts")
    assert (total.used, total.reserved) == (Rollout.objects.filter(attempt=1).count(), 0)
    for action in ACTIONS:
        with pytest.raises(SearchRefused):
            action(actor=people.editor, search=search)


def test_a_run_that_a_person_cancels_pauses_the_search_until_it_is_asked_for_again(
    people: People,
) -> None:
    search = start(people)
    play(until=lambda: Run.objects.filter(search_run__phase="evidence").exists())
    cancel_run(actor=people.editor, run=Run.objects.get(search_run__phase="evidence"))
    play()
    search.refresh_from_db()
    assert search.state == SearchState.PAUSED
    assert "Watching the seed harness cancelled" in search.error
    resume_search(actor=people.editor, search=search)
    play()
    search.refresh_from_db()
    assert (search.state, search.error) == (SearchState.AWAITING_APPROVAL, "")


def test_a_search_does_not_go_on_with_other_data(people: People) -> None:
    """gepa mixes them without a word."""
    search = start(people)
    play(until=lambda: Run.objects.filter(search_run__phase="screen").exists())
    pause_search(actor=people.editor, search=search)
    play()
    assert search.environment_version is not None
    task = search.environment_version.tasks.filter(split="select").first()
    assert task is not None
    task.prompt = "something else"
    task.save()
    with pytest.raises(SearchRefused, match="select tasks changed"):
        resume_search(actor=people.editor, search=search)
    assert state_of(search) == SearchState.PAUSED


def test_a_nudge_has_words(people: People) -> None:
    search = start(people)
    assert nudge(actor=people.editor, search=search, text=" Look at dates. ").text == (
        "Look at dates."
    )
    for text in ("  ", "x" * 2_001):
        with pytest.raises(SearchRefused, match="1 to 2,000"):
            nudge(actor=people.editor, search=search, text=text)


# --- caps ---------------------------------------------------------------------------------------


def test_a_cap_of_money_pauses_the_search_and_a_higher_one_lets_it_go_on(people: People) -> None:
    search = start(people, budget={"rollouts": 104, "usd": 0.05})
    play()
    search.refresh_from_db()
    assert search.state == SearchState.PAUSED
    assert "agent budget of $0" in search.error
    money = Budget.objects.get(scope=f"search:{search.pk}", unit="micro_usd")
    assert 0 < money.used <= money.cap
    assert money.reserved == 0
    with pytest.raises(SearchRefused, match="less than the agent has spent"):
        set_budget(
            actor=people.editor, search=search, budget=BudgetSettings(rollouts=104, usd=0.001)
        )
    with pytest.raises(SearchRefused, match="cannot change on the way"):
        set_budget(actor=people.editor, search=search, budget=BudgetSettings(rollouts=500))
    set_budget(actor=people.editor, search=search, budget=BudgetSettings(rollouts=104, usd=9))
    resume_search(actor=people.editor, search=search)
    play()
    assert state_of(search) == SearchState.AWAITING_APPROVAL


def test_what_is_set_aside_for_the_proof_cannot_be_spent_on_search(people: People) -> None:
    search = start(people)
    play()
    caps = {
        b.scope.rpartition("/")[2]: (b.cap, b.used)
        for b in Budget.objects.filter(scope__startswith=f"search:{search.pk}/", unit="rollouts")
    }
    assert set(caps) == {"search", "certify", "test", "retry"}
    assert all(used <= cap for cap, used in caps.values())
    total = Budget.objects.get(scope=f"search:{search.pk}", unit="rollouts")
    assert sum(cap for cap, _ in caps.values()) == total.cap == 104
    assert sum(used for _, used in caps.values()) == total.used == Rollout.objects.count()


# --- the end ------------------------------------------------------------------------------------


def test_where_nothing_helps_the_seed_stays_and_no_sealed_task_is_read(people: People) -> None:
    search = start(people)
    play(nothing_helps)
    search.refresh_from_db()
    assert search.outcome["verdict"] != "improved"
    if search.outcome["shipped"] == search.seed_harness_id:
        assert search.state == SearchState.COMPLETED
        assert not Rollout.objects.filter(task__split="test").exists()
        with pytest.raises(SearchRefused, match="nothing waits for approval"):
            approve(actor=people.editor, search=search)
    assert not search.candidates.filter(status=Candidate.Status.CERTIFIED).exists()


def test_a_release_is_rolled_back_to_the_one_before(people: People) -> None:
    search = start(people)
    play()
    assert search.environment_version is not None
    environment = search.environment_version.environment
    first = releases.release(
        actor=people.editor, environment=environment, harness=search.seed_harness
    )
    second = approve(actor=people.editor, search=search)
    assert second.previous == first
    assert releases.current(environment) == second
    with pytest.raises(ReleaseRefused, match=f"release {second.pk} does"):
        releases.roll_back(actor=people.editor, release=first)
    assert releases.roll_back(actor=people.editor, release=second) == first
    with pytest.raises(ReleaseRefused):
        releases.roll_back(actor=people.editor, release=second)
    with pytest.raises(PermissionDenied):
        releases.roll_back(actor=people.member, release=first)
    assert [release.pk for release in releases.history(environment)] == [second.pk, first.pk]


def test_a_declined_search_keeps_the_seed(people: People) -> None:
    search = start(people)
    play()
    decline(actor=people.editor, search=search, note="too long")
    assert state_of(search) == SearchState.COMPLETED
    assert any("too long" in payload["text"] for payload in told(search, "decision"))
    assert not search.releases.exists()


def test_a_cancel_that_was_cut_off_before_the_run_is_carried_on_by_the_job(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = start(people)
    play(until=lambda: Run.objects.filter(search_run__phase="screen").exists())

    def die(search: Search) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(services, "cancel_runs", die)
    with pytest.raises(KeyboardInterrupt):
        cancel_search(actor=people.editor, search=search)
    job = Job.objects.get(key=f"search-{search.pk}-after-cancel")
    run_attempt(job.pk)
    assert not Run.objects.exclude(state__in=ENDED_RUN_STATES).exists()
