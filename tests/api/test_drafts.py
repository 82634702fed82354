"""Environments written, brought and played by REST alone."""

from __future__ import annotations

import base64
import io
import json
import zipfile
from typing import Any

import pytest

from orchestrator.environments.models import EnvironmentVersion
from orchestrator.projects.models import Role
from orchestrator.tryouts.models import TryoutCommand
from tests.api.client import Program, fields_of, problem_in, program_of
from tests.api.world import furnish
from tests.base import People

pytestmark = pytest.mark.django_db


@pytest.fixture
def editor(people: People) -> Program:
    return program_of(people.editor, people.project)


def task(prompt: str, answer: str, **more: Any) -> dict[str, Any]:
    return {"task": {"split": "train", "prompt": prompt, "answers": [answer], **more}}


def test_an_environment_is_written_task_by_task_and_published(
    people: People, editor: Program
) -> None:
    project = people.project.pk
    made = editor.post("written_environments", project, body={"name": "Sums", "kind": "qa"})
    assert made.status_code == 201, made.content
    slug = made.json()["environment"]
    where = (project, slug)
    tag = editor.get("environment_draft", *where)["ETag"]
    stored = editor.send("PUT", "draft_task", *where, "two", body=task("1 + 1?", "2"), If_Match=tag)
    assert stored.status_code == 200, stored.content
    assert stored.json()["task"]["answers"] == ["2"]
    stale = editor.send("PUT", "draft_task", *where, "x", body=task("?", "1"), If_Match=tag)
    problem_in(stale, 412)
    assert editor.fetch(stored.json()["url"]).json()["task"]["prompt"] == "1 + 1?"
    wrong = {**task("1 + 2?", "3", colour="red")}
    refused = editor.send("PUT", "draft_task", *where, "b", body=wrong, If_Match="*")
    assert fields_of(problem_in(refused, 400)) == ["task.colour"]
    changed = editor.send(
        "PATCH", "environment_draft", *where, body={"description": "Add."}, If_Match="*"
    )
    assert changed.json()["description"] == "Add."
    undone = editor.post("environment_draft_undo", *where, If_Match="*")
    assert (undone.json()["description"], undone.json()["tasks"]["train"]) == ("", 1)
    published = editor.post(
        "environment_draft_publish", *where, body={"note": "First."}, If_Match="*"
    )
    assert published.status_code == 201, published.content
    assert (published.json()["number"], published.json()["tasks"]) == (1, {"train": 1})
    problem_in(editor.get("environment_draft", *where), 404)
    begun = editor.post("environment_draft", *where, body={})
    assert (begun.status_code, begun.json()["base"]) == (201, 1)
    assert editor.send("DELETE", "environment_draft", *where, If_Match="*").status_code == 204


def test_a_file_of_tasks_is_read_first_and_then_taken(people: People, editor: Program) -> None:
    project = people.project.pk
    editor.post("written_environments", project, body={"name": "Sums", "kind": "qa"})
    where = (project, "sums")
    rows = [{"key": f"t{n}", "prompt": f"{n} + 1?", "answers": [str(n + 1)]} for n in range(4)]
    text = "\n".join([*map(json.dumps, rows), "{broken"])
    read = editor.post("draft_uploads", *where, body={"filename": "rows.jsonl", "text": text})
    assert read.status_code == 201, read.content
    assert read.json()["summary"]["n_tasks"] == 4 and len(read.json()["errors"]) == 1
    upload = read.json()["id"]
    assert editor.get("environment_draft", *where).json()["tasks"]["train"] == 0
    taken = editor.post("draft_upload_apply", *where, upload, body={"mode": "add"}, If_Match="*")
    assert taken.json()["tasks"]["train"] == 4, taken.content
    problem_in(editor.send("DELETE", "draft_upload", *where, upload), 409)
    body = {"action": "move", "split": "test", "keys": ["t0"]}
    moved = editor.post("draft_tasks_change", *where, body=body, If_Match="*")
    assert moved.json()["tasks"] == {"train": 3, "select": 0, "test": 1}
    drawn = editor.post(
        "draft_split", *where, body={"seed": 1, "select": 1, "test": 2}, If_Match="*"
    )
    assert drawn.json()["tasks"] == {"train": 1, "select": 1, "test": 2}
    listed = editor.get("draft_tasks", *where, split="test").json()["items"]
    assert len(listed) == 2 and all(each["task"]["answers"] for each in listed)
    gone = editor.send("DELETE", "draft_task", *where, "t1", If_Match="*")
    assert gone.status_code == 204
    both = {"text": "a", "content": "YQ=="}
    problem_in(editor.post("draft_uploads", *where, body=both), 400)
    viewer = program_of(people.member, people.project, Role.VIEWER)
    problem_in(viewer.get("environment_draft", *where), 403)


def test_a_folder_comes_as_a_zip_file(people: People, editor: Program) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("sums/environment.yaml", "name: Sums\nkind: qa\n")
        line = {"key": "a", "split": "train", "prompt": "1?", "answers": ["1"]}
        archive.writestr("sums/tasks.jsonl", json.dumps(line))
    body = {"zip": base64.b64encode(packed.getvalue()).decode()}
    made = editor.post("environment_folders", people.project.pk, body=body)
    assert (made.status_code, made.json()["tasks"]) == (201, {"train": 1})
    assert EnvironmentVersion.objects.count() == 1
    not_a_zip = {"zip": base64.b64encode(b"no").decode()}
    problem_in(editor.post("environment_folders", people.project.pk, body=not_a_zip), 422)
    no_base64 = editor.post("environment_folders", people.project.pk, body={"zip": "%"})
    assert fields_of(problem_in(no_base64, 400)) == ["zip"]


def test_an_environment_is_described_for_people(people: People, editor: Program) -> None:
    slug = furnish(people.project, people.owner)["slug"]
    tag = editor.get("environment", people.project.pk, slug)["ETag"]
    done = editor.send(
        "PATCH", "environment", people.project.pk, slug, body={"about": "Files."}, If_Match=tag
    )
    assert (done.json()["about"], done.json()["slug"]) == ("Files.", slug)


def test_a_source_is_registered_and_stopped(people: People, editor: Program) -> None:
    project = people.project.pk
    body = {"name": "Shell", "kind": "docker", "source": {"image": "example.org/shell:1"}}
    started = editor.post("registrations", project, body=body)
    assert started.status_code == 202, started.content
    events = editor.fetch(started.json()["events_url"]).json()
    assert events["html_url"] == started.json()["html_url"]
    stopped = editor.post("registration_cancel", project, started.json()["id"])
    assert stopped.status_code == 202
    wrong = editor.post("registrations", project, body={**body, "kind": "qa"})
    assert fields_of(problem_in(wrong, 400)) == ["kind"]


def test_an_episode_is_played_by_hand(people: People, editor: Program) -> None:
    world = furnish(people.project, people.owner)
    where = (people.project.pk, world["slug"], 1)
    started = editor.post("version_tryouts", *where, body={"params": {"seed": 1}})
    assert started.status_code == 202, started.content
    told = started.json()
    assert (told["state"], told["has_ended"]) == ("starting", False)
    one = (people.project.pk, told["id"])
    for name, body in (
        ("tryout_steps", {"action": {"command": "ls"}}),
        ("tryout_undo", {"steps": 1}),
        ("tryout_rubric", {"rubric": world["rubric_id"]}),
        ("tryout_state", None),
    ):
        asked = editor.post(name, *one, body=body)
        assert asked.status_code == 202, asked.content
    assert editor.get("tryout", *one).json()["n_waiting"] == 5
    assert TryoutCommand.objects.filter(tryout_id=told["id"], kind="step").count() == 1
    problem_in(editor.post("tryout_reference", *one), 422)
    closed = editor.post("tryout_close", *one)
    assert (closed.json()["state"], closed.json()["has_ended"]) == ("ended", True)
    late = editor.post("tryout_steps", *one, body={"action": {}})
    assert "not open" in problem_in(late, 422)["detail"]
    events = editor.fetch(told["events_url"]).json()
    assert events["has_ended"] and events["events"][-1]["kind"] == "tryout.ended"
