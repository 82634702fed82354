"""Gates through the API: asked for, refused with the field, followed to the verdict."""

from __future__ import annotations

import base64
import io
import zipfile
from dataclasses import dataclass
from typing import Any

import pytest

from optimizer.models import HarnessVersion
from optimizer.store import load_harness
from orchestrator.gates.models import Gate
from orchestrator.projects.models import Role
from orchestrator.searches.releases import release
from tests.api.client import Program, fields_of, problem_in, program_of
from tests.base import People
from tests.gates.build import AFTER, BEFORE, make_gate, worth
from tests.runs.drive import make_endpoint, make_harness, make_rubric
from tests.searches.playing import make_version, play

pytestmark = pytest.mark.django_db


@dataclass
class Room:
    people: People
    program: Program
    baseline: HarnessVersion
    body: dict[str, Any]

    def post(self, **changes: Any) -> Any:
        body = {key: told for key, told in {**self.body, **changes}.items() if told is not None}
        return self.program.post("gates", self.people.project.pk, body=body)


@pytest.fixture
def room(people: People) -> Room:
    project = people.project
    version = make_version(project, {"select": 12})
    rubric = make_rubric(project).rubric
    model = make_endpoint(project, "http://127.0.0.1:9")
    baseline = make_harness(project, instructions=BEFORE)
    files = make_harness(project, instructions=AFTER)

    return Room(
        people=people,
        program=program_of(people.editor, project),
        baseline=baseline,
        body={
            "name": "PR 7: think first",
            "environment": version.environment.slug,
            "rubric": rubric.name,
            "model": model.name,
            "harness": {"files": load_harness(files).components()},
            "baseline": {"ref": baseline.short},
            "policy": {"rollouts": 240},
            "source": {"commit": "abc", "url": "https://git.example/pr/7"},
        },
    )


def test_a_gate_is_asked_for_and_followed_to_its_verdict(room: Room) -> None:
    response = room.post()
    assert response.status_code == 202, response.content
    answer = response.json()
    assert (answer["state"], answer["verdict"], answer["exit_code"]) == ("queued", "", None)
    assert answer["spent"]["most_rollouts"] == 240
    assert [look["rollouts"] for look in answer["looks"]] == [48, 96, 144, 192, 240]
    assert response["Location"] == answer["url"]
    play(worth(0.1, 0.9))
    after = room.program.fetch(answer["url"]).json()
    assert (after["state"], after["verdict"], after["exit_code"]) == ("decided", "better", 0)
    assert after["decision"]["mean"] > 0.5
    assert len(after["run_ids"]) == len(after["decisions"])
    events = room.program.fetch(answer["events_url"]).json()
    assert events["has_ended"] is True
    assert events["events"][-1]["kind"] == "gate.ended"
    page = room.program.get("gates", room.people.project.pk).json()
    assert [item["id"] for item in page["items"]] == [answer["id"]]
    assert page["items"][0]["html_url"].endswith(f"/gates/{answer['id']}/")


def test_a_folder_comes_as_a_zip(room: Room) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, text in room.body["harness"]["files"].items():
            archive.writestr(f"agent/{path}", text)
    answer = room.post(harness={"zip": base64.b64encode(packed.getvalue()).decode()}).json()
    plain = room.post().json()
    assert answer["candidate"]["sha256"] == plain["candidate"]["sha256"]


def test_the_baseline_is_what_is_released(room: Room) -> None:
    problem = problem_in(room.post(baseline=None), 422)
    assert fields_of(problem) == ["baseline"] and "nothing is released" in problem["detail"]
    gate = make_gate(room.people)
    release(
        actor=room.people.editor,
        environment=gate.environment_version.environment,
        harness=room.baseline,
    )
    body = {"environment": gate.environment_version.environment.slug, "baseline": None}
    answer = room.post(**body).json()
    assert answer["baseline"]["id"] == room.baseline.pk


@pytest.mark.parametrize(
    ("change", "status", "field"),
    [
        ({"environment": "none"}, 400, "environment"),
        ({"rubric": "none"}, 400, "rubric"),
        ({"model": "none"}, 400, "model"),
        ({"harness": {}}, 400, "harness"),
        ({"harness": {"zip": "!"}}, 400, "harness.zip"),
        ({"harness": {"ref": "h_00000000"}}, 422, "harness.ref"),
        ({"policy": {"alpha": 2}}, 422, "policy.alpha"),
        ({"policy": {"wish": 2}}, 422, "policy.wish"),
        ({"policy": {"rollouts": 10}}, 422, "policy.rollouts"),
        ({"n_tasks": 4}, 422, "tasks"),
        ({"source": {"url": "javascript:1"}}, 422, "source.url"),
    ],
)
def test_what_cannot_be_names_its_field(
    room: Room, change: dict[str, Any], status: int, field: str
) -> None:
    assert fields_of(problem_in(room.post(**change), status)) == [field]
    assert not Gate.objects.exists()


def test_the_same_request_again_is_the_same_gate(room: Room) -> None:
    project = room.people.project.pk
    key = {"Idempotency_Key": "pr-7-abc"}
    first = room.program.post("gates", project, body=room.body, **key).json()
    again = room.program.post("gates", project, body=room.body, **key)
    assert (again.json()["id"], again["Idempotent-Replayed"]) == (first["id"], "true")
    other = {**room.body, "name": "PR 8"}
    problem_in(room.program.post("gates", project, body=other, **key), 409)
    assert Gate.objects.count() == 1


def test_it_can_be_cancelled_once(room: Room) -> None:
    gate = make_gate(room.people)
    where = (room.people.project.pk, gate.pk)
    answer = room.program.post("gate_cancel", *where).json()
    assert (answer["state"], answer["verdict"], answer["exit_code"]) == ("cancelled", "", None)
    assert "has ended" in problem_in(room.program.post("gate_cancel", *where), 409)["detail"]


def test_rights_are_those_of_the_project(room: Room) -> None:
    gate = make_gate(room.people)
    project = room.people.project.pk
    viewer = program_of(room.people.member, room.people.project, Role.VIEWER)
    assert viewer.get("gate", project, gate.pk).status_code == 200
    problem_in(viewer.post("gates", project, body=room.body), 403)
    problem_in(viewer.post("gate_cancel", project, gate.pk), 403)
    elsewhere = room.people.stranger.projects.get()
    stranger = program_of(room.people.stranger, elsewhere)
    problem_in(stranger.get("gate", project, gate.pk), 404)
    problem_in(stranger.get("gate", elsewhere.pk, gate.pk), 404)
