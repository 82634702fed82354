"""What a search counts as a fact: scores with a rollout behind them, losses that are no zeros,
edits that stay buried, splits that are kept apart.
"""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import Any

import pytest
from django.db import connections

from optimizer.edits import Edit, Op
from optimizer.engines import contract
from optimizer.engines.contract import SEED, Ask, Phase, Request
from optimizer.harness import Harness
from optimizer.models import Budget, Candidate, Proposal, Search, SearchState, Tombstone
from optimizer.skills import Skill
from optimizer.store import load_harness
from orchestrator.judging import accounts
from orchestrator.judging.accounts import ROLLOUTS, BudgetExceeded
from orchestrator.runs.models import Purpose, Rollout, RolloutState, Run, VerdictRecord
from orchestrator.searches import preflight
from orchestrator.searches.rounds import Rounds, sifted
from orchestrator.searches.rows import (
    TWIN_STEP,
    built,
    planned,
    rollouts_of,
    rows_of,
    store_candidate,
)
from orchestrator.searches.settings import SearchSettings
from orchestrator.searches.spending import AGENT
from rubrics.codec import from_json, to_json
from rubrics.types import State, Transcript, Verdict
from rubrics.versions import create_rubric_version
from tests.base import People
from tests.runs.drive import RUBRIC, make_harness, make_rubric
from tests.searches.build import told
from tests.searches.playing import demonstrations_help, make_form, nothing_helps, play, start

pytestmark = pytest.mark.django_db


def say(text: str, **more: Any) -> Edit:
    return Edit(Op.APPEND, "instructions.md", content=text, operator="test", **more)


# --- criteria -----------------------------------------------------------------------------------


@pytest.mark.parametrize("written", [0.0, 1.0])
def test_less_of_a_negative_criterion_is_better(people: People, written: float) -> None:
    spec = from_json(RUBRIC)
    bad = replace(spec.criteria[0], id="wrote", name="Writes", negative=True)
    rubric = make_rubric(people.project).rubric
    both = create_rubric_version(
        rubric=rubric, spec=to_json(replace(spec, criteria=(*spec.criteria, bad)))
    )
    search = start(people, replace(make_form(people.project), rubric_version=both))
    play(until=lambda: bool(rollouts_of(search)))
    rollout = rollouts_of(search)[0]
    VerdictRecord.objects.create(
        rollout=rollout, criterion="wrote", name="writes", state="scored", value=written
    )
    row = next(row for row in rows_of(search) if "wrote" in row.criteria)
    assert row.criteria["wrote"] == 1.0 - written
    assert row.met["wrote"] is (written == 0.0)


# --- losses -------------------------------------------------------------------------------------


def test_what_is_lost_to_infrastructure_is_repeated_once_and_booked_apart(people: People) -> None:
    lost: set[int] = set()

    def lose_some(harness: Harness, rollout: Rollout) -> float | None:
        is_first = rollout.run.search_run.phase == "evidence" and len(lost) < 2
        if is_first:
            lost.add(rollout.pk)
            return None
        return demonstrations_help(harness, rollout)

    search = start(people)
    play(lose_some)
    search.refresh_from_db()
    assert search.state == SearchState.AWAITING_APPROVAL
    (again,) = Run.objects.filter(search_run__phase="retry")
    first = Rollout.objects.filter(pk__in=lost)
    assert {(r.harness_id, r.task_id, r.replicate, r.seed) for r in again.rollouts.all()} == {
        (r.harness_id, r.task_id, r.replicate, r.seed) for r in first
    }
    budget = Budget.objects.get(scope=f"search:{search.pk}/retry", unit=ROLLOUTS)
    assert (budget.used, budget.reserved) == (2, 0)
    assert all(row.score is not None for row in rows_of(search))
    assert {row.phase for row in rows_of(search)} == {"evidence", "screen", "race", "certify"}


def test_a_world_that_only_errs_gives_no_verdict_and_no_zero(people: People) -> None:
    def always_away(harness: Harness, rollout: Rollout) -> float | None:
        return 1.0 if rollout.run.search_run.phase == "preflight" else None

    search = start(people)
    play(always_away)
    search.refresh_from_db()
    assert search.state == SearchState.COMPLETED
    assert search.outcome["is_measured"] is False
    assert search.outcome["shipped"] == search.seed_harness_id
    assert not search.comparisons.exists()
    assert set(Rollout.objects.values_list("score", flat=True)) == {1.0, None}
    budget = Budget.objects.get(scope=f"search:{search.pk}/retry", unit=ROLLOUTS)
    assert budget.used == budget.cap  # and not one more


def test_an_agents_own_fault_is_not_tried_again(people: People) -> None:
    start(people)
    play(until=lambda: Run.objects.filter(search_run__phase="evidence").exists())
    run = Run.objects.get(search_run__phase="evidence")
    play(until=lambda: Run.objects.filter(search_run__phase="screen").exists())
    Rollout.objects.filter(run=run).update(
        state=RolloutState.ERRORED, score=None, cause="action_rejected", message="Not JSON."
    )
    from orchestrator.searches.retries import lost_in

    assert lost_in(run) == []


# --- preflight ----------------------------------------------------------------------------------


def test_a_rubric_that_cannot_score_ends_the_search_before_it_costs(people: People) -> None:
    search = start(people)
    play(lambda harness, rollout: None)
    search.refresh_from_db()
    assert search.state == SearchState.FAILED
    assert "Preflight: no rollout of the seed harness could be scored" in search.error
    assert "The model was away" in search.error
    assert Rollout.objects.count() == 2
    assert not Rollout.objects.filter(score__isnull=False).exists()


def test_a_scorer_that_contradicts_itself_is_refused(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter((0.25, 0.75))

    def graded(*_: object) -> list[Verdict]:
        return [Verdict("reward", State.SCORED, next(values), "")]

    monkeypatch.setattr(preflight, "_graded", graded)
    spec = from_json({"criteria": [{"id": "reward", "name": "Reward",
                                    "kind": "environment_reward", "weight": 1}]})  # fmt: skip
    found = preflight.compare_gradings(1, spec, Transcript(steps=()))
    assert "Reward gave the same transcript two scores, 0.25 and 0.75" in found


def test_a_judge_that_is_missing_is_named(people: People) -> None:
    spec = from_json({"criteria": [{"id": "kind", "name": "Kind", "kind": "judge", "weight": 1,
                                    "params": {"question": "Is the answer kind?"}}]})  # fmt: skip
    found = preflight.compare_gradings(people.project.pk, spec, Transcript(steps=()))
    assert found.startswith("Preflight: Kind cannot be graded.")


# --- rows ---------------------------------------------------------------------------------------


def test_two_sets_of_edits_with_one_harness_have_rollouts_of_their_own(people: People) -> None:
    search = start(people)
    play(until=lambda: Candidate.objects.exists())
    a, b = say("Be brief."), say("Be brief.\n")
    assert a.sha256 != b.sha256
    first, second = (store_candidate(search, contract.Candidate((edit,))) for edit in (a, b))
    assert first.harness_id == second.harness_id
    assert (first.twin, second.twin) == (0, 1)
    requests = [
        Request(Phase.SCREEN, contract.Candidate((edit,)), "train-1", 3, 0) for edit in (a, b)
    ]
    assert [p.replicate for p in planned(search, requests)] == [3, 3 + TWIN_STEP]


def test_a_skill_may_come_and_go_in_a_run(people: People) -> None:
    """gepa ends with an assertion when a component is new."""
    shelf = Skill("counting", "Counts lines. Use it for how-many questions.", "Use `wc -l`.\n")
    form = make_form(people.project)
    seed = make_harness(people.project, skills=(shelf,))
    search = start(people, replace(form, seed_harness=seed))
    content = {"name": "sorting", "description": "Sorts lines. Use it for order.", "body": "sort\n"}
    new = Edit(Op.APPEND, "skills", content=json.dumps(content))
    gone = Edit(Op.DELETE, "skills", anchor="counting")
    names = [
        [skill.name for skill in load_harness(store_candidate(search, made).harness).skills]
        for made in (contract.Candidate((new,)), contract.Candidate((gone,)), SEED)
    ]
    assert names == [["counting", "sorting"], [], ["counting"]]


def test_an_edit_that_another_has_made_impossible_is_left_out(people: People) -> None:
    harness = Harness(instructions="One.\n\nTwo.\n")
    rewrite = Edit(Op.SET, "instructions.md", content="Three.")
    cut = Edit(Op.DELETE, "instructions.md", anchor="Two.")
    assert built(harness, [cut, rewrite]).instructions == "Three.\n"


def test_every_score_of_a_candidate_has_a_rollout_behind_it(people: People) -> None:
    search = start(people)
    play()
    for candidate in search.candidates.exclude(score=None):
        scores = Rollout.objects.filter(
            run__search_run__search=search,
            harness=candidate.harness,
            task__split="train",
            state=RolloutState.SCORED,
        ).exclude(run__search_run__phase="preflight")
        found = [s for s in scores.values_list("score", flat=True) if s is not None]
        assert candidate.rollouts == len(found)
        assert candidate.score == pytest.approx(sum(found) / len(found))


def test_splits_never_share_a_rollout(people: People) -> None:
    search = start(people)
    play()
    for asked in search.search_runs.select_related("run"):
        splits = set(asked.run.rollouts.values_list("task__split", flat=True))
        expected = {"certify": "select", "test": "test"}.get(asked.phase, "train")
        assert splits == {expected}
        assert (asked.run.purpose == Purpose.CERTIFY) == (expected == "select")


# --- proposals ----------------------------------------------------------------------------------


def test_what_the_linter_refuses_is_buried_and_comes_back_only_with_more_support(
    people: People,
) -> None:
    search = start(people)
    settings = SearchSettings.from_json(search.settings)
    edit = say("Answer in one line.", support=2)
    kept, refused = sifted(search, settings, [edit, say("Ask the user what to do.")])
    assert kept == [edit]
    assert [e.content for e, _ in refused] == ["Ask the user what to do."]
    Tombstone.objects.create(
        search=search, edit_sha256=edit.sha256, edit=edit.to_json(), reason="hurts", support=2
    )
    kept, refused = sifted(search, settings, [edit])
    assert kept == []
    assert "buried" in refused[0][1][0].message
    assert sifted(search, settings, [say("Answer in one line.", support=3)])[0] != []


def test_rounds_are_known_once_all_their_proposers_have_ended(people: People) -> None:
    search = start(people, proposers=["offline", "handed_in"], propose_every=2)
    settings = SearchSettings.from_json(search.settings)

    def answered(number: int, proposer: str, *edits: Edit, state: str = "answered") -> Proposal:
        return Proposal.objects.create(
            search=search,
            round=number,
            proposer=proposer,
            state=state,
            edits=[edit.to_json() for edit in edits],
        )

    one, two = say("one", support=1, sources=("t1",)), say("two")
    answered(0, "offline", one)
    waits = answered(0, "handed_in", state="waiting")
    assert Rounds(search, settings).get(0) is None
    waits.state, waits.edits = "answered", [two.to_json()]
    waits.save()
    assert [edit.content for edit in Rounds(search, settings)[1]] == ["one", "two"]
    assert Rounds(search, settings).get(2) is None
    answered(2, "offline", say("one", support=1, sources=("t2",)))
    answered(2, "handed_in", state="failed")
    later = Rounds(search, settings)
    assert [edit.content for edit in later[0]] == ["one", "two"]
    assert [(edit.content, edit.support) for edit in later[3]] == [("one", 2), ("two", 0)]


def test_a_search_waits_for_a_person_and_goes_on_when_they_answer(people: People) -> None:
    from orchestrator.proposing.services import end

    search = start(people, proposers=["offline", "handed_in"], propose_every=100)
    play(limit=60)
    search.refresh_from_db()
    assert search.state == SearchState.RUNNING
    assert search.doing == "waits for handed_in"
    (proposal,) = search.proposals.filter(state="waiting")
    mine = say("Reply at once.", support=3)
    assert end(proposal, state="answered", reason="", edits=[mine.to_json()])
    play()
    search.refresh_from_db()
    assert search.state in (SearchState.AWAITING_APPROVAL, SearchState.COMPLETED)
    assert search.edits.get(sha256=mine.sha256).proposal == proposal
    assert {p["proposer"] for p in told(search, "proposal")} == {"offline", "handed_in"}


def test_offline_proposers_say_the_same_whenever_they_are_asked(people: People) -> None:
    from orchestrator.searches.proposers import propose

    search = start(people)
    play(nothing_helps)
    settings = SearchSettings.from_json(search.settings)
    ask = Ask(0, SEED, ())
    made = [propose(search=search, settings=settings, name="offline", ask=ask) for _ in range(2)]
    assert made[0] == made[1] != []
    assert load_harness(search.seed_harness).sha256 == search.seed_harness.sha256


# --- ledger -------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_a_share_and_the_whole_hold_whatever_runs_in_parallel() -> None:
    for scope, cap in (("search:9", 25), ("search:9/search", 20), ("search:9/certify", 20)):
        accounts.open_account(scope=scope, role=AGENT, unit=ROLLOUTS, cap=cap)
    refused: list[str] = []

    def spend(share: str, worker: int) -> None:
        for turn in range(6):
            key = f"{share}-{worker}-{turn}"
            scopes = ["search:9", f"search:9/{share}"]
            try:
                accounts.reserve(scopes=scopes, role=AGENT, key=key, amounts={ROLLOUTS: 2},
                                 what="a run", hint="")  # fmt: skip
            except BudgetExceeded as exc:
                refused.append(str(exc))
                continue
            accounts.settle(scopes=scopes, role=AGENT, key=key, amounts={ROLLOUTS: 2 - turn % 2})
        connections.close_all()

    threads = [
        threading.Thread(target=spend, args=(share, worker))
        for share in ("search", "certify")
        for worker in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
        assert not thread.is_alive()
    rows = {row.scope: row for row in Budget.objects.all()}
    assert rows["search:9"].used <= 25
    assert refused
    assert rows["search:9"].used == rows["search:9/search"].used + rows["search:9/certify"].used
    assert all(row.reserved == 0 for row in rows.values())


def test_what_an_estimate_missed_is_counted_all_the_same() -> None:
    accounts.open_account(scope="s", role=AGENT, unit="tokens", cap=100)
    accounts.reserve(
        scopes=["s"], role=AGENT, key="a", amounts={"tokens": 40}, what="a run", hint=""
    )
    for _ in range(2):
        accounts.settle(scopes=["s"], role=AGENT, key="a", amounts={"tokens": 60})
    budget = Budget.objects.get()
    assert (budget.used, budget.reserved) == (60, 0)


def test_searches_know_nothing_of_each_other(people: People) -> None:
    first, second = start(people), start(people)
    play()
    for search in Search.objects.filter(pk__in=[first.pk, second.pk]):
        total = Budget.objects.get(scope=f"search:{search.pk}", unit=ROLLOUTS)
        own = Rollout.objects.filter(run__search_run__search=search).count()
        assert (total.used, total.reserved) == (own, 0)
