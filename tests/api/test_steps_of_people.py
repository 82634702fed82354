"""What people do beside starting runs: tokens, views, releases, caps, sweeps, alarms."""

from __future__ import annotations

import base64
import io
import zipfile
from typing import Any

import pytest

from optimizer.models import Search
from orchestrator.projects.models import ApiToken, Membership, Role
from orchestrator.review.models import Annotation, ReviewQueue
from orchestrator.runs.models import SavedView
from tests.api.client import Program, fields_of, problem_in, program_of
from tests.api.world import furnish
from tests.base import People
from training.models import Checkpoint, Sweep, TrainingAlarm

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(people: People) -> dict[str, Any]:
    return furnish(people.project, people.owner)


@pytest.fixture
def editor(people: People) -> Program:
    return program_of(people.editor, people.project)


@pytest.fixture
def admin(people: People) -> Program:
    return program_of(people.owner, people.project, Role.ADMIN)


def test_a_token_is_told_once_and_revoked(people: People, editor: Program) -> None:
    body = {"name": "ci", "role": "editor", "scopes": ["read", "runs:write"], "days": 7}
    made = editor.post("tokens", people.project.pk, body=body)
    assert made.status_code == 201, made.content
    told = made.json()
    assert Program(told["secret"]).get("me").json()["token"]["scopes"] == body["scopes"]
    listed = editor.get("tokens", people.project.pk)
    assert told["secret"] not in listed.content.decode()
    assert listed.json()["items"][0]["expires_at"] == told["expires_at"]
    assert editor.send("DELETE", "token", people.project.pk, told["id"]).status_code == 204
    problem_in(Program(told["secret"]).get("me"), 401)
    problem_in(editor.send("DELETE", "token", people.project.pk, told["id"]), 409)


def test_a_token_is_no_wider_than_who_makes_it(people: People, editor: Program) -> None:
    problem_in(editor.post("tokens", people.project.pk, body={"name": "t", "role": "admin"}), 403)
    wrong = editor.post("tokens", people.project.pk, body={"name": "t", "scopes": ["fly"]})
    assert fields_of(problem_in(wrong, 400)) == ["scopes.0"]
    others = ApiToken.objects.get(user=people.editor, project=people.project)
    viewer = program_of(people.member, people.project, Role.VIEWER)
    problem_in(viewer.send("DELETE", "token", people.project.pk, others.pk), 403)


def test_members_leave_and_the_last_admin_stays(people: People, admin: Program) -> None:
    project = people.project.pk
    assert admin.send("DELETE", "member", project, people.editor.pk).status_code == 204
    assert not Membership.objects.filter(project=project, user=people.editor).exists()
    refused = admin.send("DELETE", "member", project, people.owner.pk)
    assert "only admin" in problem_in(refused, 409)["detail"]
    demoted = {"user": people.owner.username, "role": "viewer"}
    problem_in(admin.post("members", project, body=demoted), 409)


def test_a_view_is_kept_for_oneself_or_for_all(people: People, editor: Program) -> None:
    project = people.project.pk
    body = {"of": "runs", "name": "Failed", "query": "state:failed", "is_shared": True}
    made = editor.post("saved_views", project, body=body).json()
    assert made["html_url"].endswith("/runs/?q=state%3Afailed")
    viewer = program_of(people.member, people.project, Role.VIEWER)
    items = viewer.get("saved_views", project, of="runs").json()["items"]
    assert [each["name"] for each in items] == ["Failed"]
    problem_in(viewer.send("DELETE", "saved_view", project, made["id"]), 403)
    problem_in(viewer.post("saved_views", project, body=body), 403)
    own = viewer.post("saved_views", project, body={**body, "is_shared": False}).json()
    problem_in(editor.get("saved_view", project, own["id"]), 404)
    wrong = editor.post("saved_views", project, body={**body, "sort": "colour"})
    assert fields_of(problem_in(wrong, 400)) == ["sort"]
    assert editor.send("DELETE", "saved_view", project, made["id"]).status_code == 204
    assert SavedView.objects.filter(project=project).count() == 1


def test_a_harness_is_released_and_taken_back(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    project = people.project.pk
    before = editor.get("release", project, world["release_id"]).json()
    assert before["counts"] is True
    body = {"environment": world["slug"], "harness": world["harness_id"], "note": "By hand."}
    made = editor.post("releases", project, body=body, Idempotency_Key="once")
    assert made.status_code == 201, made.content
    again = editor.post("releases", project, body=body, Idempotency_Key="once")
    assert again.json() == made.json()
    counts = [
        (each["id"], each["counts"])
        for each in editor.get("releases", project, environment=world["slug"]).json()["items"]
    ]
    assert counts == [(made.json()["id"], True), (before["id"], False)]
    problem_in(editor.post("release_roll_back", project, before["id"]), 409)
    back = editor.post("release_roll_back", project, made.json()["id"]).json()
    assert back["counts_now"]["id"] == before["id"]
    assert back["release"]["rolled_back_by"] == people.editor.username
    wrong = editor.post("releases", project, body={**body, "harness": 10**14})
    assert fields_of(problem_in(wrong, 400)) == ["harness"]


def test_caps_of_judges_and_devices_are_edits(people: People, admin: Program) -> None:
    for name, body in (
        ("judge_limits", {"usd_per_day": 2.5, "tokens_per_day": None}),
        ("training_limits", {"max_running": 1, "device_s_per_day": 3600}),
    ):
        tag = admin.get(name, people.project.pk)["ETag"]
        problem_in(admin.send("PUT", name, people.project.pk, body=body), 428)
        done = admin.send("PUT", name, people.project.pk, body=body, If_Match=tag)
        assert done.status_code == 200, done.content
        assert {key: done.json()[key] for key in body} == body
        problem_in(admin.send("PUT", name, people.project.pk, body=body, If_Match=tag), 412)


def test_a_search_gets_other_caps(people: People, editor: Program, world: dict[str, Any]) -> None:
    where = (people.project.pk, world["search_id"])
    read = editor.get("search_budget", *where)
    assert read.json()["usd"] is None
    done = editor.send("PUT", "search_budget", *where, body={"usd": 5.0}, If_Match=read["ETag"])
    assert done.status_code == 200, done.content
    assert (done.json()["usd"], done.json()["rollouts"]) == (5.0, read.json()["rollouts"])
    Search.objects.filter(pk=world["search_id"]).update(state="completed")
    late = editor.send("PUT", "search_budget", *where, body={"usd": 9.0}, If_Match="*")
    problem_in(late, 409)


def test_a_sweep_is_started_read_and_cancelled(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    project = people.project.pk
    body = {
        "environment": world["slug"],
        "rubric": world["rubric_id"],
        "model": world["model_id"],
        "lambdas": [0.0],
        "seeds": [1, 2],
    }
    assert fields_of(problem_in(editor.post("sweeps", project, body=body), 400)) == ["lambdas"]
    started = editor.post("sweeps", project, body={**body, "lambdas": [0.0, 1.0]})
    assert started.status_code == 202, started.content
    told = editor.fetch(started["Location"]).json()
    assert (told["lambdas"], len(told["jobs"]), told["has_ended"]) == ([0.0, 1.0], 4, False)
    assert told["verdict"] == "infrastructure", "nothing has a score yet"
    cancelled = editor.post("sweep_cancel", project, told["id"])
    assert (cancelled.status_code, cancelled.json()["n_ended"]) == (202, 4)
    assert Sweep.objects.count() == 2


def test_a_checkpoint_without_files_is_not_merged(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    where = (people.project.pk, world["job_id"], 1)
    read = editor.get("checkpoint", *where)
    assert read.json()["is_kept"] is False
    refused = editor.post("checkpoint_merge", *where)
    assert problem_in(refused, 422)["detail"]
    assert Checkpoint.objects.get(training_job=world["job_id"]).merge == {}


@pytest.mark.parametrize(("of", "by"), [("climb", "climb_id"), ("training", "job_id")])
def test_an_alarm_is_seen(
    people: People, editor: Program, world: dict[str, Any], of: str, by: str
) -> None:
    where = (people.project.pk, world[by])
    (alarm,) = editor.get(f"{of}_alarms", *where).json()["items"]
    assert alarm["acknowledged_by"] is None
    for _ in range(2):
        seen = editor.post(f"{of}_alarm_acknowledge", *where, alarm["id"])
        assert seen.json()["acknowledged_by"] == people.editor.username
    assert TrainingAlarm.objects.count() == 1


def test_a_queue_goes_and_its_marks_stay(
    people: People, editor: Program, admin: Program, world: dict[str, Any]
) -> None:
    where = (people.project.pk, world["queue_id"])
    problem_in(editor.send("DELETE", "review_queue", *where), 403)
    n_marks = Annotation.objects.count()
    assert admin.send("DELETE", "review_queue", *where).status_code == 204
    assert not ReviewQueue.objects.exists() and Annotation.objects.count() == n_marks


def test_an_item_is_taken_passed_on_and_talked_about(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    project, queue, item = people.project.pk, world["queue_id"], world["item_id"]
    one = (project, queue, item)
    assert editor.post("review_next", project, queue).json()["item"]["id"] == item
    said = editor.post("review_item_comments", *one, body={"text": "Unclear."})
    assert said.status_code == 201, said.content
    listed = editor.get("review_item_comments", *one).json()["items"]
    assert [(each["user"], each["text"]) for each in listed] == [
        (people.editor.username, "Unclear.")
    ]
    corrected = editor.send("PUT", "review_item_correction", *one, body={"text": "Lima"})
    assert corrected.json()["text"] == "Lima"
    assert editor.send("PUT", "review_item_correction", *one, body={"text": ""}).json() == {
        "text": "",
        "html_url": corrected.json()["html_url"],
    }
    assert editor.post("review_item_skip", *one).status_code == 200
    assert editor.post("review_next", project, queue).json()["item"] is None
    assert editor.post("review_item_requeue", *one).status_code == 200
    reviewers = {"reviewers": [people.owner.username]}
    assert editor.send("PUT", "review_item_reviewers", *one, body=reviewers).status_code == 200
    problem_in(editor.post("review_item_reserve", *one), 409)
    nobody = {"reviewers": ["nobody"]}
    wrong = editor.send("PUT", "review_item_reviewers", *one, body=nobody)
    assert fields_of(problem_in(wrong, 400)) == ["reviewers"]
    other = {"name": "other", "rubric": world["rubric_id"]}
    to = editor.post("review_queues", project, body=other).json()["id"]
    moved = editor.post("review_item_move", *one, body={"queue": to})
    assert moved.status_code == 200 and editor.fetch(moved.json()["url"]).json()["id"] == item
    problem_in(editor.get("review_item", *one), 404)
    assert editor.send("DELETE", "review_item", project, to, item).status_code == 204


def test_a_look_needs_weights_that_are_kept(
    people: People, editor: Program, world: dict[str, Any]
) -> None:
    where = (people.project.pk, world["rollout_id"], world["job_id"], 1)
    assert editor.get("look", *where).json()["state"] == "none"
    problem_in(editor.post("look", *where), 422)
    assert editor.send("DELETE", "look", *where).status_code == 204


def test_a_harness_comes_as_a_zip_file(people: People, editor: Program) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("mine/harness.yaml", "{}\n")
        archive.writestr("mine/instructions.md", "Be brief.\n")
    body = {"zip": base64.b64encode(packed.getvalue()).decode(), "label": "zip"}
    made = editor.post("harnesses", people.project.pk, body=body)
    assert made.status_code == 201, made.content
    assert made.json()["files"]["instructions.md"].strip() == "Be brief."
    problem_in(editor.post("harnesses", people.project.pk, body={"label": "none"}), 400)
