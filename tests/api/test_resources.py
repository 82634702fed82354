"""Each resource once through its work: made, read back, changed, refused."""

from __future__ import annotations

from typing import Any

import pytest

from optimizer.models import Search
from orchestrator.climbs.models import Climb
from orchestrator.grading.models import Regrade
from orchestrator.review.models import Annotation
from tests.api.client import Program, fields_of, problem_in, program_of
from tests.api.world import furnish
from tests.base import People
from tests.web.build import make_rollout, make_run, tasks_of
from training.models import TrainingJob

pytestmark = pytest.mark.django_db
SPEC = {"criteria": [{"id": "right", "name": "Right", "kind": "environment_reward", "weight": 1}]}


@pytest.fixture
def world(people: People) -> dict[str, Any]:
    return furnish(people.project, people.owner)


@pytest.fixture
def editor(people: People) -> Program:
    return program_of(people.editor, people.project)


def work_on(world: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "environment": world["slug"],
        "rubric": world["rubric_id"],
        "model": world["model_id"],
        "harness": world["harness_id"],
        **more,
    }


def test_an_environment_is_written_as_one_object(people: People, editor: Program) -> None:
    task = {"key": "sum", "split": "select", "prompt": "2 + 2?", "answers": ["4"]}
    body = {"name": "Sums", "kind": "qa", "about": "Adding.", "tasks": [task]}
    made = editor.post("environments", people.project.pk, body=body)
    assert made.status_code == 201, made.content
    assert (made.json()["number"], made.json()["tasks"]) == (1, {"select": 1})
    same = editor.post("environments", people.project.pk, body=body).json()
    assert same["number"] == 1, "equal content is one version"
    tasks = editor.get("environment_tasks", people.project.pk, "sums", 1).json()["items"]
    assert [each["key"] for each in tasks] == ["sum"] and "4" not in str(tasks[0]["prompt"])
    assert "answers" not in str(tasks), "what solves a task is not told"
    wrong = {**body, "tasks": [{**task, "answers": "4", "colour": "red"}]}
    assert (
        "colour"
        in problem_in(editor.post("environments", people.project.pk, body=wrong), 422)["detail"]
    )
    checked = editor.post("environment_checks", people.project.pk, "sums", 1)
    assert (checked.status_code, checked.json()["state"]) == (202, "queued")
    assert editor.fetch(checked.json()["url"]).json()["results"] == []


def test_a_rubric_is_written_and_published(people: People, editor: Program) -> None:
    project = people.project.pk
    rubric = editor.post("rubrics", project, body={"name": "Sums"}).json()
    where = (project, rubric["id"])
    draft = editor.get("rubric_draft", *where)
    assert draft.json()["problems"]
    saved = editor.send("PUT", "rubric_draft", *where, body={"spec": SPEC}, If_Match=draft["ETag"])
    assert (saved.status_code, saved.json()["problems"]) == (200, [])
    stale: dict[str, Any] = {"spec": {"criteria": []}}
    refused = editor.send("PUT", "rubric_draft", *where, body=stale, If_Match=draft["ETag"])
    problem_in(refused, 412)
    published = editor.post("rubric_publish", *where, body={}, If_Match=saved["ETag"])
    assert (published.status_code, published.json()["number"]) == (201, 1)
    assert editor.get("rubric", *where).json()["versions"] == [1]
    problem_in(editor.get("rubric_draft", *where), 404)


def test_a_harness_is_kept_by_its_content(people: People, editor: Program) -> None:
    project = people.project.pk
    body = {"files": {"instructions.md": "Answer with a number."}, "label": "sums"}
    made = editor.post("harnesses", project, body=body).json()
    assert editor.post("harnesses", project, body=body).json()["id"] == made["id"]
    read = editor.get("harness", project, made["id"])
    assert read.json()["files"]["instructions.md"] == "Answer with a number."
    changed = editor.send(
        "PATCH", "harness", project, made["id"], body={"label": "adds"}, If_Match=read["ETag"]
    )
    assert changed.json()["label"] == "adds"
    unknown = {"files": {"instructions.md": "", "extra.txt": "?"}}
    assert "extra.txt" in problem_in(editor.post("harnesses", project, body=unknown), 422)["detail"]


def test_models_keep_their_keys(people: People, editor: Program, world: dict[str, Any]) -> None:
    project = people.project.pk
    read = editor.get("model", project, world["model_id"])
    assert "secret" not in read.json() and read.json()["has_key"] is False
    judge = editor.send(
        "PATCH", "model", project, world["model_id"], body={"is_judge": True}, If_Match=read["ETag"]
    )
    assert judge.json()["is_judge"] is True
    in_use = editor.send("DELETE", "model", project, world["model_id"])
    assert "runs were made with it" in problem_in(in_use, 409)["detail"]
    assert editor.send("PUT", "model_bundled", project).json()["kind"] == "local"


def test_runs_are_compared_with_a_baseline(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    answer = editor.get("comparison", people.project.pk, runs=str(world["run_id"]))
    assert fields_of(problem_in(answer, 400)) == ["runs"]
    base, other = (make_run(people.project) for _ in range(2))
    other.environment_version = base.environment_version
    other.save()
    for place, task in enumerate(tasks_of(base)):
        make_rollout(base, task, score=0.0)
        make_rollout(other, task, score=float(place > 0))
    runs = f"{base.pk},{other.pk},999"
    told = editor.get("comparison", people.project.pk, runs=runs).json()
    (side,) = told["sides"]
    assert (side["n_pairs"], round(side["difference"], 3)) == (3, 0.667)
    low, high = side["interval"]
    assert low <= side["difference"] <= high and told["unknown"] == ["999"]


def test_a_search_is_started_and_steered(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    project = people.project.pk
    wrong = work_on(world, settings={"budget": {"rollouts": "many"}})
    problem = problem_in(editor.post("searches", project, body=wrong), 400)
    assert fields_of(problem) == ["settings.budget.rollouts"]
    search = Search.objects.get(pk=world["search_id"])
    url = (project, search.pk)
    Search.objects.filter(pk=search.pk).update(state="running")
    assert editor.post("search_pause", *url).json()["state"] == "paused"
    again = editor.post("search_pause", *url)
    assert "cannot be paused" in problem_in(again, 409)["detail"]
    nudged = editor.post("search_nudges", *url, body={"text": "Try shorter answers."})
    assert nudged.status_code == 201
    problem_in(editor.post("search_decision", *url, body={"approve": True}), 409)


def test_a_climb_is_started_and_steered(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    project = people.project.pk
    body = work_on(world, name="Up", settings={"max_rollouts": 100, "search": {"blocks": 4}})
    made = editor.post("climbs", project, body=body, Idempotency_Key="up")
    assert made.status_code == 202, made.content
    climb = Climb.objects.get(pk=made.json()["id"])
    assert (climb.config["max_rollouts"], climb.config["search"]["blocks"]) == (100, 4)
    assert [rung["kind"] for rung in made.json()["rungs"]] == ["baseline", "harness", "echo"]
    assert editor.post("climb_pause", project, climb.pk).json()["state"] == "paused"
    assert editor.post("climb_resume", project, climb.pk).json()["state"] == "queued"
    assert editor.post("climb_cancel", project, climb.pk).json()["has_ended"] is True
    ended = editor.get("climb_events", project, climb.pk).json()
    assert ended["has_ended"] is True


def test_a_training_names_what_it_cannot_take(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    project = people.project.pk
    for settings, field in (
        ({"steps": 1.5}, "settings.steps"),
        ({"colour": 1}, "settings.colour"),
        ({"device": "abacus"}, "settings"),
    ):
        refused = editor.post("trainings", project, body=work_on(world, settings=settings))
        assert fields_of(problem_in(refused, 400)) == [field]
    job = TrainingJob.objects.get(pk=world["job_id"])
    told = editor.get("training", project, job.pk).json()
    assert (told["state"], told["total_steps"]) == (job.state, job.total_steps)
    assert editor.get("training_curves", project, job.pk).json()["html_url"].endswith(f"{job.pk}/")
    gone = editor.post("checkpoint_promote", project, job.pk, 1, body={})
    assert "not kept" in problem_in(gone, 422)["detail"]


def test_past_rollouts_are_graded_again(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    project = people.project.pk
    body = {"rubric": world["rubric_id"], "rollouts": [world["rollout_id"]]}
    made = editor.post("regrades", project, body=body)
    assert (made.status_code, made.json()["n_total"]) == (202, 1)
    assert Regrade.objects.filter(pk=made.json()["id"], job__isnull=False).exists()
    scores = editor.get("regrade_scores", project, world["regrade_id"]).json()["items"]
    assert [(row["rollout"], row["score"]) for row in scores] == [(world["rollout_id"], 0.5)]


def test_people_mark_rollouts_by_api(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    project = people.project.pk
    body = {"name": "By eye", "rubric": world["rubric_id"]}
    queue = editor.post("review_queues", project, body=body).json()
    rollouts = {"rollouts": [world["rollout_id"], 10**14]}
    added = editor.post("review_items", project, queue["id"], body=rollouts).json()
    assert (added["added"], added["refused"]) == (1, {"not in this project": 1})
    (item,) = editor.get("review_items", project, queue["id"]).json()["items"]
    marks = {"marks": {"correct": {"said": "1"}}}
    saved = editor.send("PUT", "review_marks", project, queue["id"], item["id"], body=marks)
    assert saved.status_code == 200, saved.content
    mine = Annotation.objects.get(user=people.editor)
    assert (mine.criterion, mine.value) == ("correct", 1.0)
    told = editor.get("annotations", project, rollout=world["rollout_id"]).json()["items"]
    assert mine.pk in {mark["id"] for mark in told}
