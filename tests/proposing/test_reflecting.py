"""A model is asked for edits: what it sees, what becomes of its answer, and what it costs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from optimizer.edits import Edit, Op
from optimizer.engines.contract import Candidate
from optimizer.harness import INSTRUCTIONS, Harness
from optimizer.models import Budget, Nudge, Proposal, Tombstone
from optimizer.models import Candidate as CandidateRow
from optimizer.models import Edit as EditRow
from optimizer.store import store_harness
from orchestrator.proposing import services
from orchestrator.proposing.signals import proposal_answered
from orchestrator.runs.models import Rollout
from tests.base import People
from tests.doubles.model_server import Asked, Raw, Reply, ScriptedModel, refusal
from tests.proposing.build import (
    GOOD,
    SEALED,
    answered,
    ask,
    cap,
    edits_of,
    findings_of,
    make_rollout,
    make_search,
    said,
)

pytestmark = pytest.mark.django_db


@contextmanager
def heard() -> Iterator[list[Proposal]]:
    found: list[Proposal] = []

    def receive(proposal: Proposal, **_: Any) -> None:
        found.append(proposal)

    proposal_answered.connect(receive, sender=Proposal)
    try:
        yield found
    finally:
        proposal_answered.disconnect(receive, sender=Proposal)


def test_an_answer_becomes_edits_once_and_is_announced(people: People) -> None:
    with ScriptedModel(lambda asked: said()) as model, heard() as told:
        search = make_search(people.project, model)
        proposal = answered(search)
        assert ask(search) == proposal
        assert len(model.asked) == 1
    assert (proposal.state, proposal.reason) == ("answered", "It guesses.")
    (edit,) = edits_of(proposal)
    assert (edit.content, edit.operator, edit.support) == (GOOD["content"], "reflection", 2)
    assert [item.pk for item in told] == [proposal.pk]
    (reply,) = proposal.answers
    assert json.loads(reply["text"]) == json.loads(said())
    usage = reply["tokens_in"], reply["tokens_out"]
    assert proposal.tokens == sum(usage) > 0
    assert proposal.cost_usd == pytest.approx((usage[0] + 2 * usage[1]) / 1e6)


def test_the_question_holds_train_traces_and_reasons_alone(people: People) -> None:
    with ScriptedModel(lambda asked: said()) as model:
        proposal = answered(make_search(people.project, model))
        prompt = model.asked[0].last
    assert prompt == proposal.prompt
    assert "right says 0" in prompt
    assert "text of train-0" in prompt
    assert "barred says" not in prompt
    assert SEALED not in prompt
    assert "Sealed question" not in prompt
    assert proposal.request["tasks"] == ["train-0", "train-1", "train-2", "train-3"]
    form = model.asked[0].body["response_format"]["json_schema"]["schema"]
    assert form == proposal.request["schema"]


def test_a_nudge_reaches_the_next_question_and_no_later_one(people: People) -> None:
    with ScriptedModel(lambda asked: said()) as model:
        search = make_search(people.project, model)
        nudge = Nudge.objects.create(search=search, text="Mind the units.")
        first, second = answered(search), answered(search, round=1)
    nudge.refresh_from_db()
    assert nudge.proposal == first
    assert "Mind the units." in first.prompt
    assert "Mind the units." not in second.prompt


def test_later_questions_show_rollouts_that_were_not_told_yet(people: People) -> None:
    with ScriptedModel(lambda asked: said()) as model:
        search = make_search(people.project, model)
        first = answered(search)
        fresh = make_rollout(search, "train-2", score=0.0)
        second = answered(search, round=1)
    assert fresh.pk not in first.request["rollouts"]
    assert second.request["rollouts"][0] == fresh.pk
    again = set(first.request["rollouts"]) & set(second.request["rollouts"])
    scores = Rollout.objects.filter(pk__in=again).values_list("score", flat=True)
    assert set(scores) == {1.0}  # what passed is shown beside it


def test_a_trace_says_which_edits_its_harness_had(people: People) -> None:
    with ScriptedModel(lambda asked: said()) as model:
        search = make_search(people.project, model)
        edit = Edit(Op.APPEND, INSTRUCTIONS, content="Mind the header line.")
        EditRow.objects.create(
            search=search,
            position=0,
            sha256=edit.sha256,
            operator="x",
            component=edit.component,
            data=edit.to_json(),
        )
        harness = store_harness(
            project_id=people.project.pk, harness=Harness(instructions="Other.\n")
        )
        CandidateRow.objects.create(search=search, harness=harness, edits=[edit.sha256])
        rollout = make_rollout(search, "train-0", score=0.0)
        Rollout.objects.filter(pk=rollout.pk).update(harness=harness)
        proposal = answered(search)
    assert '"append instructions.md: Mind the header line."' in proposal.prompt


def test_edits_that_may_not_be_tried_are_kept_with_their_reasons(people: People) -> None:
    copied = {**GOOD, "content": f"Note: {SEALED} The second."}
    bad = [copied, {**GOOD, "op": "improve"}, {**GOOD, "component": "harness.yaml"}]
    with ScriptedModel(lambda asked: said(GOOD, *bad)) as model:
        proposal = answered(make_search(people.project, model))
        assert len(model.asked) == 1
    assert len(proposal.edits) == 1
    for code in ("copied", "unreadable", "component"):
        assert f"{code}: " in findings_of(proposal)


def test_a_repeated_buried_edit_is_told_and_costs_its_budget_alone(people: People) -> None:
    with ScriptedModel(lambda asked: said()) as model:
        search = make_search(people.project, model)
        cap(search, "tokens", 1_000_000)
        grave = Edit(Op.APPEND, INSTRUCTIONS, content=GOOD["content"])
        Tombstone.objects.create(
            search=search,
            edit_sha256=grave.sha256,
            edit=grave.to_json(),
            reason="-4 points",
            support=2,
        )
        proposal = answered(search)
        asked = [item.last for item in model.asked]
    assert (proposal.state, proposal.edits) == ("answered", [])
    assert "buried: was buried (-4 points) with 2 tasks behind it" in findings_of(proposal)
    assert len(asked) == 3
    assert '"-4 points"' in asked[0]
    assert "none of it may be tried" in asked[1]
    budget = Budget.objects.get(role="proposer")
    assert (budget.used, budget.reserved) == (proposal.tokens, 0)


def test_with_more_tasks_behind_it_a_buried_edit_comes_back(people: People) -> None:
    entry = {**GOOD, "tasks": ["train-0", "train-1", "train-2"]}
    with ScriptedModel(lambda asked: said(entry)) as model:
        search = make_search(people.project, model)
        grave = Edit(Op.APPEND, INSTRUCTIONS, content=GOOD["content"])
        Tombstone.objects.create(
            search=search, edit_sha256=grave.sha256, edit=grave.to_json(), reason="no", support=2
        )
        assert edits_of(answered(search))[0].support == 3


def test_nothing_to_propose_is_an_answer(people: People) -> None:
    with ScriptedModel(lambda asked: '{"cause": "Noise.", "edits": []}') as model:
        proposal = answered(make_search(people.project, model))
        assert len(model.asked) == 1
    assert (proposal.state, proposal.edits, proposal.reason) == ("answered", [], "Noise.")


def test_a_rewrite_is_made_of_the_parent(people: People) -> None:
    parent = Candidate((Edit(Op.APPEND, INSTRUCTIONS, content="Be brief."),))
    whole = {**GOOD, "op": "set", "content": "Look, then answer briefly."}
    with ScriptedModel(lambda asked: said(whole)) as model:
        search = make_search(people.project, model)
        proposal = answered(search, parent=parent, rewrite=True)
        plain = answered(search, round=1)
    assert "Be brief." in proposal.prompt
    assert edits_of(proposal)[0].op is Op.SET
    assert (plain.edits, "whole: " in findings_of(plain)) == ([], True)


def test_a_skill_is_made_of_contrasts(people: People) -> None:
    skill = {
        "name": "look-first",
        "description": "Look before answering. Use for questions on files.",
        "body": "1. Print the file.\n2. Answer.",
        "tasks": ["train-0", "train-2"],
    }
    with ScriptedModel(lambda asked: said(skill, field="skills")) as model:
        search = make_search(people.project, model)
        make_rollout(search, "train-0", score=1.0)
        proposal = answered(search, "reflection.skill", failed=1, passed=1)
        assert proposal.request["tasks"] == ["train-0"]
    (edit,) = edits_of(proposal)
    assert (edit.component, edit.operator, edit.support) == ("skills", "reflection.skill", 1)


def test_tools_are_described_anew_from_wrong_calls(people: People) -> None:
    better = {"tool": "find", "parameter": "q", "description": "One word.", "tasks": ["train-1"]}
    with ScriptedModel(lambda asked: said(better, field="descriptions")) as model:
        search = make_search(people.project, model)
        wrong = make_rollout(
            search,
            "train-1",
            score=1.0,
            action={"tool": "find", "arguments": {"q": "two words"}},
            observation={"tool_error": "q: one word only"},
        )
        proposal = answered(search, "reflection.tools")
    assert proposal.request["rollouts"] == [wrong.pk]
    assert "q: one word only" in proposal.prompt
    (edit,) = edits_of(proposal)
    assert (edit.component, edit.anchor, edit.content) == ("tools.json", "find.q", "One word.")


def test_what_is_protected_is_neither_offered_nor_taken(people: People) -> None:
    with ScriptedModel(lambda asked: said()) as model:
        search = make_search(people.project, model)
        proposal = answered(search, protected=[INSTRUCTIONS])
    assert proposal.request["components"] == ["skills"]
    assert (proposal.edits, "component: " in findings_of(proposal)) == ([], True)


def test_an_endpoint_is_asked_more_plainly_if_it_refuses_the_form(people: People) -> None:
    def plain(asked: Asked) -> Reply | Raw:
        if "response_format" in asked.body or "temperature" in asked.body:
            return refusal(400, "unsupported parameter")
        return Reply(said(), obeys_limits=False)

    with ScriptedModel(plain) as model:
        search = make_search(people.project, model)
        assert answered(search).state == "answered"
        assert "max_completion_tokens" in model.asked[-1].body
        assert len(model.asked) == 3
        answered(search, round=1)
        assert len(model.asked) == 5  # that it takes no schema is known
    assert search.model is not None
    search.model.refresh_from_db()
    assert search.model.supports_schema is False


def test_a_harness_without_anything_to_change_is_not_asked_about(people: People) -> None:
    with ScriptedModel(lambda asked: said()) as model:
        search = make_search(people.project, model)
        proposal = answered(search, protected=[INSTRUCTIONS, "skills"])
        assert model.asked == []
    assert (proposal.state, proposal.edits) == ("answered", [])


def test_an_unknown_proposer_or_term_is_refused(people: People) -> None:
    search = make_search(people.project)
    with pytest.raises(ValueError, match="Unknown proposer 'magic'; accepts reflection"):
        ask(search, "magic")
    with pytest.raises(ValueError, match="Unknown terms of a proposer: max_edit"):
        ask(search, max_edit=3)
    with pytest.raises(ValueError, match="max_edits is a whole number from 1"):
        ask(search, max_edits=0)


def test_a_withdrawn_proposal_ends_and_its_job_does_nothing(people: People) -> None:
    with ScriptedModel(lambda asked: said()) as model:
        search = make_search(people.project, model)
        proposal = ask(search)
        services.withdraw(search=search, reason="The search was cancelled.")
        proposal.refresh_from_db()
        assert (proposal.state, proposal.reason) == ("failed", "The search was cancelled.")
        assert model.asked == []


def test_a_seed_with_a_long_trace_is_windowed(people: People) -> None:
    long = {"segments": [{"kind": "env_output", "text": "x" * 15_000}]}
    with ScriptedModel(lambda asked: said()) as model:
        search = make_search(people.project, model, harness=Harness(instructions="Act.\n"))
        make_rollout(search, "train-0", score=0.0, observation=long)
        proposal = answered(search, round=3, room_chars=4_000)
    assert "characters left out" in proposal.prompt
    assert len(proposal.prompt) < 20_000
