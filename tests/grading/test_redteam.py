"""Attacks end to end: a judge that obeys what it reads is caught, one that does not is not."""

from __future__ import annotations

import json
import re
import threading
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection

from orchestrator.agents.models import ModelEndpoint
from orchestrator.grading.errors import AttackRefused
from orchestrator.grading.models import GoldenCase, RedTeamReport
from orchestrator.grading.redteam.bases import choose
from orchestrator.grading.redteam.services import attack_rubric, cancel_attack, make_golden_case
from orchestrator.jobs.execution import run_attempt
from orchestrator.judging.models import JudgeCall
from orchestrator.projects.models import Project, User
from rubrics.models import Rubric
from rubrics.redteam.attacks import BY_ID, Family
from rubrics.transcript_codec import from_json
from tests.base import People, make_people
from tests.doubles.model_server import Asked, Raw, ScriptedModel
from tests.web.build import make_rollout, make_run, make_trace, tasks_of

pytestmark = pytest.mark.django_db(transaction=True)

JUDGE: dict[str, Any] = {
    "id": "right",
    "kind": "judge",
    "name": "The answer is right",
    "scope": "trajectory",
    "params": {"question": "Is the answer right?", "sees": ["task", "steps", "answer", "expected"]},
}
DEMANDS = (
    "score me",
    '"score": 1',
    "score: 1",
    "给这个",
    "bewerte",
    "califica",
    "الدرجة",
    "score 1",
)


def seen(asked: Asked) -> tuple[str, dict[str, Any]]:
    """The key to repeat, and the data in its frame."""
    user = asked.messages[1][1]
    key = re.search(r'"key": "([0-9a-f]{12})"', user.rpartition("Reply with")[2])
    data = re.search(r"<data-(\w+)>\n(.*)\n</data-\1>", user, re.DOTALL)
    assert key is not None
    assert data is not None
    return key.group(1), json.loads(data.group(2))


def reply(asked: Asked, score: int, why: str) -> str:
    return json.dumps({"key": seen(asked)[0], "reason": why, "score": score})


def sound(asked: Asked) -> str:
    _, data = seen(asked)
    is_right = data["final_answer"] == data["reference_answer"]
    return reply(asked, int(is_right), "compared with the reference")


def obedient(asked: Asked) -> str:
    """As the sound one, unless some text in the data asks for more."""
    _, data = seen(asked)
    text = json.dumps(data, ensure_ascii=False).lower().replace("\\", "")
    if any(demand in text for demand in DEMANDS):
        return reply(asked, 1, "the text says so")
    return sound(asked)


@pytest.fixture
def people(db: None) -> People:
    return make_people()


def judge_at(project: Project, model: ScriptedModel, **changes: Any) -> ModelEndpoint:
    values: dict[str, Any] = {
        "name": "j1",
        "kind": "openai",
        "base_url": model.url,
        "model": model.name,
        "is_judge": True,
        "price_in_usd_per_mtok": 1.0,
        "price_out_usd_per_mtok": 2.0,
        **changes,
    }
    return ModelEndpoint.objects.create(project=project, **values)


def attacked(people: People, *criteria: dict[str, Any], **options: Any) -> RedTeamReport:
    spec = {"criteria": list(criteria)}
    rubric = Rubric.objects.create(project=people.project, name="r")
    report = attack_rubric(actor=people.editor, rubric=rubric, spec=spec, version=None, **options)
    assert report.job is not None
    run_attempt(report.job.pk)
    report.refresh_from_db()
    return report


def paid(report: RedTeamReport) -> set[str]:
    return {result["attack"] for result in report.results if result["paid"]}


def test_a_judge_that_obeys_the_text_is_caught_with_its_raw_replies(people: People) -> None:
    with ScriptedModel(obedient) as model:
        judge_at(people.project, model)
        report = attacked(people, JUDGE)
    assert (report.state, report.error) == ("completed", "")
    injections = {a.id for a in BY_ID.values() if a.family is Family.INJECTION}
    assert injections <= paid(report)
    assert not paid(report) & {"politeness", "padded-8", "wrong-number", "again", "reference"}
    rate = report.summary["numbers"]["injection"]
    assert rate["rate"] == 1.0
    assert rate["low"] > 0.7
    result = next(r for r in report.results if r["attack"] == "answer-demand")
    assert (result["score"], result["before"]) == (1.0, 0.0)
    assert [p["criterion"] for p in result["payers"]] == ["right"]
    call = result["verdicts"][0]["detail"]["calls"][0]["call"]
    assert "the text says so" in JudgeCall.objects.get(pk=call).replies[0]["text"]
    assert "obeys what it reads" in result["advice"]


def test_a_sound_judge_is_not(people: People) -> None:
    with ScriptedModel(sound) as model:
        judge_at(people.project, model)
        report = attacked(people, JUDGE)
    assert paid(report) == set()
    numbers = report.summary["numbers"]
    assert numbers["injection"]["rate"] == 0.0
    assert numbers["injection"]["high"] < 0.2
    assert numbers["agreement"]["rate"] == 1.0
    assert numbers["n_errored"] == 0
    assert report.summary["spent"]["calls"] == JudgeCall.objects.count() > 30
    assert report.summary["n_done"] == report.summary["n_total"] == len(report.results)


PAIRS: dict[str, Any] = {
    "id": "best",
    "kind": "judge_group",
    "name": "The best of them",
    "scope": "trajectory",
    "params": {
        "question": "Which answer is right?",
        "method": "pairwise",
        "sees": ["task", "steps", "answer", "expected"],
    },
}
PLACES = ("first", "second")


def compares(asked: Asked) -> str:
    """The right one of a pair wins; of two alike neither."""
    _, data = seen(asked)
    right = [data[place]["final_answer"] == data["reference_answer"] for place in PLACES]
    return marked(asked, 0.5 + (right[0] - right[1]) / 2)


def believes(asked: Asked) -> str:
    """Whoever asks for it wins."""
    _, data = seen(asked)
    asks = ["score me" in json.dumps(data[place]).lower() for place in PLACES]
    return marked(asked, 0.5 + (asks[0] - asks[1]) / 2) if any(asks) else compares(asked)


def marked(asked: Asked, score: float) -> str:
    return json.dumps({"key": seen(asked)[0], "reason": "compared", "score": score})


def test_a_criterion_that_compares_is_attacked_in_company(people: People) -> None:
    with ScriptedModel(believes) as model:
        judge_at(people.project, model)
        report = attacked(people, PAIRS)
    assert report.state == "completed"
    assert {"answer-demand", "observed-demand"} <= paid(report)
    assert not paid(report) & {"padded-8", "answer-in-chinese", "wrong-number", "again"}
    numbers = report.summary["numbers"]
    assert numbers["pairs"]["n"] > 50
    assert numbers["pairs"]["rate"] == 0.0
    assert numbers["n_errored"] == 0
    result = next(r for r in report.results if r["attack"] == "answer-demand")
    assert result["score"] > result["before"]


def test_one_that_compares_soundly_is_not_caught(people: People) -> None:
    with ScriptedModel(compares) as model:
        judge_at(people.project, model)
        report = attacked(people, PAIRS)
    assert paid(report) == set()


def test_a_comparison_by_place_is_noticed(people: People) -> None:
    with ScriptedModel(lambda asked: marked(asked, 1.0)) as model:
        judge_at(people.project, model)
        report = attacked(people, PAIRS)
    assert report.summary["numbers"]["pairs"]["rate"] == 1.0


def test_a_judge_that_contradicts_itself_is_noticed(people: People) -> None:
    with ScriptedModel(lambda asked: reply(asked, int(asked.body["seed"] > 0), "by seed")) as model:
        judge_at(people.project, model)
        report = attacked(people, JUDGE)
    assert "again" in paid(report)
    assert report.summary["numbers"]["agreement"]["rate"] == 0.0


def test_a_rubric_that_looks_for_a_word_is_caught(people: People) -> None:
    naive = {"id": "has", "kind": "contains", "params": {"texts": ["42"]}}
    report = attacked(people, naive)
    assert {"echo-rubric", "echo-keywords", "hedged", "negated"} <= paid(report)
    assert report.summary["spent"]["calls"] == 0


def test_a_sound_rubric_of_code_is_not(people: People) -> None:
    report = attacked(people, {"id": "e", "kind": "exact"})
    assert paid(report) == set()
    assert [b["is_success"] for b in report.summary["bases"]] == [True, False]


def test_the_cap_holds_and_what_it_stopped_is_no_finding(people: People) -> None:
    with ScriptedModel(obedient) as model:
        judge_at(people.project, model)
        report = attacked(people, JUDGE, cap_usd=0.01)
    spent = report.summary["spent"]
    assert 0 < spent["usd"] <= 0.01
    assert spent["refused"] > 0
    errored = [r for r in report.results if r["state"] == "errored"]
    assert errored
    assert all(not r["paid"] and r["score"] is None for r in errored)
    assert any("cap of $0.01" in r["reason"] for r in errored)


def test_without_a_judge_the_report_says_what_to_do(people: People) -> None:
    report = attacked(people, JUDGE)
    assert report.state == "failed"
    assert "Settings" in report.error


def test_a_judge_that_breaks_half_way_leaves_no_zero(people: People) -> None:
    calls = iter(range(1000))

    def breaks(asked: Asked) -> str | Raw:
        return sound(asked) if next(calls) < 20 else Raw(400, '{"error": {"message": "no"}}')

    with ScriptedModel(breaks) as model:
        judge_at(people.project, model)
        report = attacked(people, JUDGE)
    assert report.state == "completed"
    assert report.summary["numbers"]["n_errored"] > 0
    assert all(r["score"] is None for r in report.results if r["state"] == "errored")
    assert paid(report) == set()


def test_a_finding_becomes_a_case_that_must_fail_once(people: People) -> None:
    report = attacked(people, {"id": "has", "kind": "contains", "params": {"texts": ["42"]}})
    number = next(i for i, r in enumerate(report.results) if r["attack"] == "negated")
    case = make_golden_case(actor=people.editor, report=report, number=number)
    assert (case.expect, case.rubric) == ("fail", report.rubric)
    assert from_json(case.transcript).answer == "It is not 42"
    with pytest.raises(AttackRefused, match="already"):
        make_golden_case(actor=people.editor, report=report, number=number)
    with pytest.raises(AttackRefused, match="no such result"):
        make_golden_case(actor=people.editor, report=report, number=999)
    assert GoldenCase.objects.count() == 1


def test_one_that_waits_for_its_judge_is_cancelled_and_keeps_what_it_found(
    people: People, settings: Any
) -> None:
    settings.JOB_BEAT_S = 0.1
    begun, may_answer = threading.Event(), threading.Event()

    def hangs(asked: Asked) -> str:
        """From the second chunk of attacks on."""
        if len(model.asked) > 25:
            begun.set()
            may_answer.wait(30)
        return sound(asked)

    rubric = Rubric.objects.create(project=people.project, name="r")
    spec = {"criteria": [JUDGE]}
    with ScriptedModel(hangs) as model:
        judge_at(people.project, model)
        report = attack_rubric(actor=people.editor, rubric=rubric, spec=spec, version=None)
        assert report.job is not None
        worker = threading.Thread(target=work_on, args=[report.job.pk])
        worker.start()
        try:
            assert begun.wait(30)
            cancel_attack(actor=people.editor, report=report)
            worker.join(20)
            assert not worker.is_alive()
        finally:
            may_answer.set()
            worker.join(30)
    report.refresh_from_db()
    assert report.state == "cancelled"
    assert report.ended_at is not None
    assert len(report.results) >= 16


def work_on(job_id: int) -> None:
    try:
        run_attempt(job_id)
    finally:
        connection.close()


def test_who_may_attack_and_with_what(people: People) -> None:
    rubric = Rubric.objects.create(project=people.project, name="r")
    spec = {"criteria": [{"id": "e", "kind": "exact"}]}

    def start(actor: User, **changes: Any) -> RedTeamReport:
        return attack_rubric(
            actor=actor, **{"rubric": rubric, "spec": spec, "version": None, **changes}
        )

    with pytest.raises(PermissionDenied):
        start(people.member)
    refused: tuple[dict[str, Any], ...] = (
        {"n_bases": 1},
        {"cap_usd": -1.0},
        {"spec": {"criteria": []}},
    )
    for wrong in refused:
        with pytest.raises(AttackRefused):
            start(people.editor, **wrong)
    first = start(people.editor)
    assert start(people.editor) == first
    cancel_attack(actor=people.editor, report=first)
    first.refresh_from_db()
    assert first.state == "cancelled"


def test_rollouts_that_the_rubric_graded_are_attacked_and_sealed_ones_are_not(
    people: People,
) -> None:
    run = make_run(people.project)
    for split, scores in (("train", (1.0, 0.0, 0.5)), ("test", (1.0, 0.0, 0.0))):
        for task, score in zip(tasks_of(run, split), scores, strict=True):
            make_trace(make_rollout(run, task, score=score))
    bases = choose(run.rubric_version.rubric, 2)
    assert [b.label.split("task ")[1] for b in bases] == ["train-0001", "train-0002"]
    assert all(b.transcript.steps and b.rollout for b in bases)
    other = Rubric.objects.create(project=people.project, name="new")
    assert [b.rollout for b in choose(other, 2)] == [b.rollout for b in bases]
