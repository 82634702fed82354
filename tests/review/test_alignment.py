"""Asking a model for a better question: over real HTTP, tested on labels kept apart."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from orchestrator.agents.models import ModelEndpoint
from orchestrator.grading.models import Alignment, RubricDraft
from orchestrator.jobs.execution import run_attempt
from orchestrator.judging.models import JudgeCall
from orchestrator.review.alignment import (
    cancel_alignment,
    offered_question,
    start_alignment,
    take_over,
)
from orchestrator.review.errors import ReviewRefused
from rubrics.models import Rubric, RubricVersion
from tests.base import People
from tests.doubles.model_server import Asked, Raw, ScriptedModel, refusal
from tests.review.labelling import Labelled, answered, make_rubric

pytestmark = pytest.mark.django_db(transaction=True)
BETTER = "Does the final answer contain the path of the file that the task names?"
Reply = str | Raw


def judges_well(asked: Asked) -> Reply:
    """Right about every answer once it is asked the better question."""
    found = re.search(r'"key": "([0-9a-f]{12})"', asked.last)
    assert found is not None
    is_right = '"final_answer": "right' in asked.last or BETTER not in asked.last
    return json.dumps({"key": found.group(1), "reason": "seen", "score": int(is_right)})


def world(proposes: Callable[[int], Reply]) -> Callable[[Asked], Reply]:
    """`proposes`: reply to the n-th request for a proposal."""
    n = [0]

    def script(asked: Asked) -> Reply:
        if not asked.messages[0][1].startswith("You improve"):
            return judges_well(asked)
        n[0] += 1
        return proposes(n[0])

    return script


def proposal(question: str = BETTER) -> str:
    return json.dumps({"question": question, "why": "it took any name"})


@pytest.fixture
def rubric(people: People) -> Rubric:
    """Labelled: its judge passes everything, people half of it."""
    rubric = make_rubric(people.project)
    filled = Labelled(rubric.versions.get())
    for i in range(60):
        is_right = i % 2 == 0
        rollout = answered(filled.rollout(1.0), f"{'right' if is_right else 'wrong'} {i}")
        filled.label(rollout, people.editor, float(is_right), note="not the one asked for")
    return rubric


def endpoint(rubric: Rubric, model: ScriptedModel, **changes: Any) -> ModelEndpoint:
    values: dict[str, Any] = {
        "name": "j1",
        "kind": "openai",
        "base_url": model.url,
        "model": model.name,
        "is_judge": True,
        "price_in_usd_per_mtok": 1.0,
        **changes,
    }
    return ModelEndpoint.objects.create(project=rubric.project, **values)


def aligned(people: People, rubric: Rubric, row: ModelEndpoint, **options: Any) -> Alignment:
    made = start_alignment(
        actor=people.editor,
        version=rubric.versions.get(),
        criterion="names-file",
        endpoint=row,
        **options,
    )
    assert made.job_id is not None
    run_attempt(made.job_id)
    return Alignment.objects.get(pk=made.pk)


def test_a_better_question_is_found_tested_and_offered(people: People, rubric: Rubric) -> None:
    with ScriptedModel(world(lambda n: proposal())) as model:
        made = aligned(people, rubric, endpoint(rubric, model))
        asked = [a for a in model.asked if a.messages[0][1].startswith("You improve")]
    assert (made.state, made.error) == ("completed", "")
    assert made.result["verdict"] == "better"
    assert made.result["after"]["kappa"] == 1.0
    assert made.result["before"]["kappa"] == 0.0
    assert made.n_done == made.n_total == made.result["n"] >= 10
    assert made.tokens > 0 and made.cost_usd > 0
    assert JudgeCall.objects.count() == made.n_total
    # What is tested on was never shown.
    held_out = {m.rollout_id for m in rubric.annotations.filter(is_held_out=True)}
    shown = asked[0].last
    for mark in rubric.annotations.select_related("rollout__stream"):
        text = mark.rollout.stream.events.get(kind="action").payload["text"]
        if mark.rollout_id in held_out:
            assert f'{text}\\"' not in shown
    assert "not the one asked for" in shown
    # Nothing is published by itself, and nothing is in the draft before somebody says so.
    assert rubric.versions.count() == 1
    assert not RubricDraft.objects.exists()
    draft = take_over(actor=people.editor, alignment=made)
    assert draft.spec["criteria"][0]["params"] == {"question": BETTER}
    assert rubric.versions.count() == 1
    made.refresh_from_db()
    assert made.draft_revision == draft.revision


def test_bad_proposals_are_kept_as_rejected_and_corrected(people: People, rubric: Rubric) -> None:
    replies: list[Reply] = ["Sure! Ask better.", proposal("Is the answer good?"), proposal()]
    with ScriptedModel(world(lambda n: replies[n - 1])) as model:
        made = aligned(people, rubric, endpoint(rubric, model))
        last = [a for a in model.asked if a.messages[0][1].startswith("You improve")][-1]
    assert made.state == "completed"
    why = [p["rejected"] for p in made.proposals]
    assert "not one JSON object" in why[0]
    assert "linter" in why[1]
    assert why[2] == ""
    assert made.proposals[0]["raw"] == "Sure! Ask better."
    assert "Is the answer good?" in last.last
    assert offered_question(made) == BETTER


def test_a_model_that_never_gives_one_is_a_failure_with_its_reason(
    people: People, rubric: Rubric
) -> None:
    with ScriptedModel(world(lambda n: proposal("Is it good?"))) as model:
        made = aligned(people, rubric, endpoint(rubric, model))
    assert made.state == "failed"
    assert "none that could be tested" in made.error
    assert len(made.proposals) == 3
    assert not JudgeCall.objects.exists()
    with pytest.raises(ReviewRefused, match="none to take over"):
        take_over(actor=people.editor, alignment=made)


def test_an_endpoint_without_schemas_is_asked_in_words(people: People, rubric: Rubric) -> None:
    def script(asked: Asked) -> Reply:
        if "response_format" in asked.body:
            return refusal(400, "no response_format here")
        return world(lambda n: proposal())(asked)

    with ScriptedModel(script) as model:
        made = aligned(people, rubric, endpoint(rubric, model))
    assert made.result["verdict"] == "better"


def test_a_refusing_model_is_told(people: People, rubric: Rubric) -> None:
    with ScriptedModel(world(lambda n: refusal(401, "bad key"))) as model:
        made = aligned(people, rubric, endpoint(rubric, model))
    assert (made.state, "bad key" in made.error) == ("failed", True)


def test_a_spent_cap_ends_the_judging_and_is_no_verdict(people: People, rubric: Rubric) -> None:
    with ScriptedModel(world(lambda n: proposal())) as model:
        row = endpoint(rubric, model, price_in_usd_per_mtok=1e6)
        made = aligned(people, rubric, row, max_cost_usd=0.5)
    assert made.state == "completed"
    assert made.result["verdict"] == "unsure"
    assert made.result["n_without_verdict"] > 0
    assert made.result["after"]["confusion"] == [0, 0, 0, 0]


def test_too_few_labels_are_refused_with_the_number(people: People) -> None:
    rubric = make_rubric(people.project, name="few")
    filled = Labelled(rubric.versions.get())
    with ScriptedModel(world(lambda n: proposal())) as model:
        row = endpoint(rubric, model)
        with pytest.raises(ReviewRefused, match="needs 2 disagreements"):
            aligned(people, rubric, row)
        while rubric.annotations.filter(is_held_out=False).count() < 3:
            filled.label(filled.rollout(1.0), people.editor, 0.0)
        rubric.annotations.filter(is_held_out=True).delete()
        with pytest.raises(ReviewRefused, match="there are 0"):
            aligned(people, rubric, row)


def test_who_may_and_one_at_a_time(people: People, rubric: Rubric) -> None:
    with ScriptedModel(world(lambda n: proposal())) as model:
        row = endpoint(rubric, model)
    version = RubricVersion.objects.get(rubric=rubric)
    given: dict[str, Any] = {"version": version, "criterion": "names-file", "endpoint": row}
    with pytest.raises(PermissionDenied):
        start_alignment(actor=people.member, **given)
    with pytest.raises(Http404):
        start_alignment(actor=people.stranger, **given)
    first = start_alignment(actor=people.editor, **given)
    assert start_alignment(actor=people.owner, **given) == first
    with pytest.raises(PermissionDenied):
        cancel_alignment(actor=people.member, alignment=first)
    cancel_alignment(actor=people.editor, alignment=first)
    first.refresh_from_db()
    assert first.state == "cancelled"
    assert first.job is not None
    assert first.job.state == "cancelled"
    assert start_alignment(actor=people.editor, **given) != first


def test_a_draft_without_the_criterion_is_left_alone(people: People, rubric: Rubric) -> None:
    with ScriptedModel(world(lambda n: proposal())) as model:
        made = aligned(people, rubric, endpoint(rubric, model))
    spec = {"criteria": [{"id": "other", "kind": "exact"}]}
    RubricDraft.objects.create(rubric=rubric, spec=spec)
    with pytest.raises(ReviewRefused, match="no judge names-file"):
        take_over(actor=people.editor, alignment=made)
    assert RubricDraft.objects.get().spec == spec
