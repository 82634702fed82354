"""What people do with a rubric beside writing it: try, attack, calibrate, better, back-test it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.grading.models import CriterionPolicyEntry, GoldenCase, RedTeamReport, Regrade
from orchestrator.jobs.models import Job
from orchestrator.review.models import Annotation
from tests.api.client import Program, fields_of, problem_in, program_of
from tests.api.world import furnish
from tests.base import People

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(people: People) -> dict[str, Any]:
    return furnish(people.project, people.owner)


@pytest.fixture
def editor(people: People) -> Program:
    return program_of(people.editor, people.project)


@pytest.fixture
def where(people: People, world: dict[str, Any]) -> tuple[int, int]:
    return people.project.pk, world["rubric_id"]


def test_a_rubric_is_tried_on_a_rollout_or_a_golden_case(
    editor: Program, world: dict[str, Any], where: tuple[int, int]
) -> None:
    for body in ({"rollout": world["rollout_id"]}, {"golden_case": world["case_id"]}):
        shown = editor.post("rubric_preview", *where, body=body)
        assert shown.status_code == 200, shown.content
        assert shown.json()["of"] == "draft" and shown.json()["lines"]
    wrong = editor.post("rubric_preview", *where, body={})
    assert problem_in(wrong, 400)["errors"]
    assert Job.objects.filter(kind__startswith="grading").count() == 0, "nothing is started"


def test_golden_cases_are_kept_tried_and_removed(
    editor: Program, world: dict[str, Any], where: tuple[int, int]
) -> None:
    body = {"name": "wrong", "expect": "fail", "transcript": {"answer": "5", "reward": 0.0}}
    made = editor.post("golden_cases", *where, body=body)
    assert made.status_code == 201, made.content
    copied = {"name": "copy", "expect": "pass", "rollout": world["rollout_id"]}
    assert editor.post("golden_cases", *where, body=copied).json()["transcript"]
    problem_in(editor.post("golden_cases", *where, body=body), 422)
    unreadable = {**body, "name": "n", "transcript": {"colour": "red"}}
    problem_in(editor.post("golden_cases", *where, body=unreadable), 422)
    both = {**body, "rollout": world["rollout_id"]}
    problem_in(editor.post("golden_cases", *where, body=both), 400)
    report = editor.post("golden_try", *where, body={}).json()
    assert len(report["cases"]) == 3
    assert sum(report[name] for name in ("n_held", "n_failed", "n_untold")) == 3
    gone = editor.send("DELETE", "golden_case", where[0], made.json()["id"])
    assert gone.status_code == 204 and not GoldenCase.objects.filter(name="wrong").exists()


def test_an_attack_is_started_once_and_a_finding_kept(
    editor: Program, world: dict[str, Any], where: tuple[int, int]
) -> None:
    started = editor.post("attacks", *where, body={"n_bases": 2})
    assert started.status_code == 202, started.content
    again = editor.post("attacks", *where, body={"n_bases": 2})
    assert again.json()["id"] == started.json()["id"], "one is under way"
    events = editor.fetch(started.json()["events_url"]).json()
    assert (events["has_ended"], events["events"][0]["kind"]) == (False, "state")
    cancelled = editor.post("attack_cancel", where[0], started.json()["id"])
    assert cancelled.status_code == 202
    found = editor.get("attack", where[0], world["report_id"]).json()
    assert (found["n_paid"], found["results"][0]["paid"]) == (1, True)
    problem_in(editor.post("attack_golden", where[0], world["report_id"], body={"number": 7}), 422)
    wrong = editor.post("attacks", *where, body={"version": 99})
    assert fields_of(problem_in(wrong, 400)) == ["version"]
    assert RedTeamReport.objects.count() == 2


def test_calibration_is_read_and_decided_on(
    people: People, editor: Program, world: dict[str, Any], where: tuple[int, int]
) -> None:
    told = editor.get("calibration", *where).json()
    assert {"correct"} <= {each["criterion"] for each in told["criteria"]}
    only = editor.get("calibration", *where, criterion="correct").json()["criteria"]
    assert {each["criterion"] for each in only} == {"correct"}
    label = {"rollout": world["rollout_id"], "criterion": "correct", "said": "1"}
    mark = editor.post("calibration_labels", *where, body=label)
    assert mark.status_code == 200, mark.content
    assert Annotation.objects.filter(user=people.editor, criterion="correct").count() == 1
    tag = editor.get("criterion_policy", *where, "correct")["ETag"]
    barred = {"is_barred": True, "reason": "People disagree."}
    done = editor.send("PUT", "criterion_policy", *where, "correct", body=barred, If_Match=tag)
    assert done.json()["is_barred"] is True and CriterionPolicyEntry.objects.count() == 1
    assert editor.fetch(done.json()["url"]).json()["reason"] == "People disagree."
    bar = editor.get("calibration_bar", where[0])
    body = {"kappa": 0.7, "min_labels": 40}
    changed = editor.send("PUT", "calibration_bar", where[0], body=body, If_Match=bar["ETag"])
    assert {name: changed.json()[name] for name in body} == body


def test_unmarked_rollouts_go_into_a_queue(
    editor: Program, world: dict[str, Any], where: tuple[int, int]
) -> None:
    body = {"criterion": "nothing", "n": 5}
    assert (
        "no such criterion"
        in problem_in(editor.post("calibration_queue", *where, body=body), 422)["detail"]
    )
    queue = {**body, "criterion": "correct", "queue": 10**14}
    assert fields_of(problem_in(editor.post("calibration_queue", *where, body=queue), 400)) == [
        "queue"
    ]


def test_a_better_question_needs_labels_first(
    editor: Program, world: dict[str, Any], where: tuple[int, int]
) -> None:
    body = {"criterion": "correct", "model": world["model_id"]}
    problem_in(editor.post("alignments", *where, body=body), 422)
    listed = editor.get("alignments", *where, criterion="correct").json()["items"]
    assert [each["id"] for each in listed] == [world["alignment_id"]]
    problem_in(editor.post("alignment_take", where[0], world["alignment_id"]), 422)
    assert editor.post("alignment_cancel", where[0], world["alignment_id"]).status_code == 202


def test_criteria_are_asked_for_and_settled(
    editor: Program, world: dict[str, Any], where: tuple[int, int]
) -> None:
    body = {"model": world["model_id"], "environment": world["slug"], "n_traces": 0}
    asked = editor.post("suggestions", *where, body=body)
    assert asked.status_code == 202, asked.content
    assert editor.post("suggestion_cancel", where[0], asked.json()["id"]).status_code == 202
    settled = editor.post(
        "suggestion_settle", where[0], world["suggestion_id"], body={"number": 0, "how": "taken"}
    )
    assert settled.json()["criteria"][0]["settled"] == "taken"
    gone = {"number": 9, "how": "taken"}
    problem_in(editor.post("suggestion_settle", where[0], world["suggestion_id"], body=gone), 422)


def test_a_draft_is_tested_on_past_rollouts(
    editor: Program, world: dict[str, Any], where: tuple[int, int]
) -> None:
    started = editor.post("rubric_backtests", *where, body={"rollouts": [world["rollout_id"]]})
    assert started.status_code == 202, started.content
    assert (started.json()["purpose"], started.json()["version"]) == ("backtest", None)
    listed = editor.get("rubric_backtests", *where).json()["items"]
    assert [each["id"] for each in listed] == [started.json()["id"], world["regrade_id"]]
    assert editor.send("DELETE", "rubric_draft", *where, If_Match="*").status_code == 204
    problem_in(editor.post("rubric_backtests", *where, body={}), 409)


def test_what_errored_is_graded_again(
    editor: Program, world: dict[str, Any], where: tuple[int, int]
) -> None:
    problem_in(editor.post("run_retry", where[0], world["run_id"]), 422)
    assert editor.post("regrade_retry", where[0], world["regrade_id"]).status_code == 202
    assert Regrade.objects.count() == 1
