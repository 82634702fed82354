"""What all addresses share: tokens and scopes, keys, tags, limits, problems, the document."""

from __future__ import annotations

import fcntl
import tempfile
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.api import idempotency
from orchestrator.api.buckets import SLOTS, SharedBuckets
from orchestrator.api.models import IdempotentRequest
from orchestrator.api.paging import encoded
from orchestrator.projects.models import ApiToken, Project, Role
from orchestrator.projects.scopes import SCOPES
from orchestrator.projects.services import TokenRefused, issue_token
from orchestrator.runs.models import Run
from tests.api.client import Program, problem_in, program_of
from tests.api.test_runs import asked_like
from tests.base import People
from tests.web.build import make_run

pytestmark = pytest.mark.django_db


# --- tokens -----------------------------------------------------------------------------------


def test_a_token_says_what_it_may(people: People) -> None:
    program = program_of(people.editor, people.project, scopes=("read", "runs:write"))
    answer = program.get("me").json()
    assert answer["user"] == people.editor.username
    assert answer["token"]["scopes"] == ["read", "runs:write"]
    assert answer["token"]["project"] == people.project.pk
    signed_in = Client()
    signed_in.force_login(people.editor)
    assert signed_in.get("/api/v1/me").json()["token"] is None


def test_a_token_does_nothing_outside_its_scopes(people: People) -> None:
    like = make_run(people.project)
    reader = program_of(people.editor, people.project, scopes=("read",))
    assert reader.get("runs", people.project.pk).status_code == 200
    assert (
        "scope"
        in problem_in(reader.post("runs", people.project.pk, body=asked_like(like)), 403)["detail"]
    )
    writer = program_of(people.editor, people.project, scopes=("runs:write",))
    problem_in(writer.get("runs", people.project.pk), 403)
    started = writer.post("runs", people.project.pk, body=asked_like(like))
    assert started.status_code == 202
    problem_in(writer.post("ingest", people.project.pk, body=[]), 403)


def test_a_scope_never_lends_a_role(people: People) -> None:
    like = make_run(people.project)
    program = program_of(people.member, people.project, Role.VIEWER, ("read", "runs:write"))
    problem_in(program.post("runs", people.project.pk, body=asked_like(like)), 403)


def test_an_expired_token_is_refused(people: People) -> None:
    program = program_of(people.editor, people.project)
    ApiToken.objects.update(expires_at=timezone.now() + timedelta(hours=1))
    assert program.get("me").status_code == 200
    ApiToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert "expired" in problem_in(program.get("me"), 401)["detail"]


@pytest.mark.parametrize(
    ("asked", "field"),
    [({"scopes": ["fly"]}, "scopes"), ({"lifetime": timedelta(0)}, "lifetime")],
)
def test_a_token_that_cannot_be_is_refused(
    people: People, asked: dict[str, Any], field: str
) -> None:
    with pytest.raises(TokenRefused) as caught:
        issue_token(
            actor=people.editor, project_id=people.project.pk, name="t", role=Role.VIEWER, **asked
        )
    assert caught.value.field == field


def test_a_token_makes_none_that_is_wider_than_itself(people: People) -> None:
    narrow = issue_token(
        actor=people.editor,
        project_id=people.project.pk,
        name="t",
        role=Role.EDITOR,
        scopes=["project:write", "read"],
        lifetime=timedelta(hours=1),
    )
    people.editor.api_token = narrow.token  # type: ignore[attr-defined] # as authentication does
    common: dict[str, Any] = {"actor": people.editor, "project_id": people.project.pk, "name": "t"}
    for scopes in ([], ["runs:write"]):
        with pytest.raises(TokenRefused):
            issue_token(**common, role=Role.EDITOR, scopes=scopes)
    child = issue_token(**common, role=Role.VIEWER, scopes=["read"])
    assert child.token.expires_at == narrow.token.expires_at


# --- keys -------------------------------------------------------------------------------------


def test_a_request_sent_again_under_its_key_does_nothing_more(people: People) -> None:
    like = make_run(people.project)
    program = program_of(people.editor, people.project)
    body = asked_like(like)
    first = program.post("runs", people.project.pk, body=body, Idempotency_Key="k-1")
    again = program.post("runs", people.project.pk, body=body, Idempotency_Key="k-1")
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json() == first.json() and again["Location"] == first["Location"]
    assert again["Idempotent-Replayed"] == "true" and "Idempotent-Replayed" not in first
    assert Run.objects.count() == 2
    other = program.post(
        "runs", people.project.pk, body={**body, "n_tasks": 1}, Idempotency_Key="k-1"
    )
    assert "another request" in problem_in(other, 409)["detail"]
    someone = program_of(people.owner, people.project)
    assert (
        someone.post("runs", people.project.pk, body=body, Idempotency_Key="k-1").json()
        != first.json()
    )


def test_a_refused_request_may_be_mended_under_its_key(people: People) -> None:
    like = make_run(people.project)
    program = program_of(people.editor, people.project)
    wrong = asked_like(like, model=10**14)
    problem_in(program.post("runs", people.project.pk, body=wrong, Idempotency_Key="k"), 400)
    right = program.post("runs", people.project.pk, body=asked_like(like), Idempotency_Key="k")
    assert right.status_code == 202


@pytest.mark.parametrize("key", ["", "two words", "é", "x" * 201])
def test_a_key_is_printable_and_short(people: People, key: str) -> None:
    like = make_run(people.project)
    program = program_of(people.editor, people.project)
    response = program.post("runs", people.project.pk, body=asked_like(like), Idempotency_Key=key)
    problem_in(response, 400)
    assert Run.objects.count() == 1


def test_old_keys_are_forgotten(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "OLD_EVERY", 1)
    like = make_run(people.project)
    program = program_of(people.editor, people.project)
    program.post("runs", people.project.pk, body=asked_like(like), Idempotency_Key="old")
    IdempotentRequest.objects.update(created_at=timezone.now() - timedelta(days=8))
    program.post("runs", people.project.pk, body=asked_like(like), Idempotency_Key="new")
    assert list(IdempotentRequest.objects.values_list("key", flat=True)) == ["new"]


# --- edits ------------------------------------------------------------------------------------


def test_an_edit_overwrites_nobody(people: People) -> None:
    program = program_of(people.owner, people.project, Role.ADMIN)
    read = program.get("project", people.project.pk)
    body = {"name": "Renamed"}
    problem_in(program.send("PATCH", "project", people.project.pk, body=body), 428)
    Project.objects.filter(pk=people.project.pk).update(name="By somebody else")
    stale = program.send("PATCH", "project", people.project.pk, body=body, If_Match=read["ETag"])
    assert "read it again" in problem_in(stale, 412)["detail"]
    fresh = program.get("project", people.project.pk)["ETag"]
    done = program.send("PATCH", "project", people.project.pk, body=body, If_Match=fresh)
    assert (done.status_code, done.json()["name"]) == (200, "Renamed")
    assert done["ETag"] == program.get("project", people.project.pk)["ETag"] != fresh
    editor = program_of(people.editor, people.project)
    problem_in(editor.send("PATCH", "project", people.project.pk, body=body, If_Match="*"), 403)


# --- limits -----------------------------------------------------------------------------------


def test_too_many_requests_are_told_when_to_go_on(people: People, settings: Any) -> None:
    settings.API_REQUESTS_PER_MINUTE = 2
    program = program_of(people.editor, people.project)
    for _ in range(2):
        assert program.get("me").status_code == 200
    refused = program.get("me")
    assert problem_in(refused, 429)
    assert 1 <= int(refused["Retry-After"]) <= 30
    other = program_of(people.editor, people.project)
    assert other.get("me").status_code == 200


def made(folder: Path) -> SharedBuckets:
    return SharedBuckets(folder / "buckets")


@given(st.lists(st.floats(0, 30), max_size=80), st.integers(1, 50))
def test_no_minute_lets_more_through_than_twice_its_share(
    pauses: list[float], per_minute: int
) -> None:
    now, taken = 1000.0, []
    with tempfile.TemporaryDirectory() as folder, closing(made(Path(folder))) as buckets:
        for pause in pauses:
            now += pause
            if buckets.take("somebody", per_minute, now) == 0.0:
                taken.append(now)
    for start in taken:
        assert sum(start <= at < start + 60 for at in taken) <= 2 * per_minute


def test_who_waits_as_long_as_told_goes_on(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as buckets:
        assert buckets.take("somebody", 1, 1.0) == 0.0
        wait_s = buckets.take("somebody", 1, 11.0)
        assert wait_s == pytest.approx(50.0)
        assert buckets.take("somebody", 1, 11.0 + wait_s + 1e-6) == 0.0


def test_processes_take_from_the_same_bucket(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as one, closing(made(tmp_path)) as other:
        assert one.take("somebody", 2, 1.0) == 0.0
        assert other.take("somebody", 2, 1.0) == 0.0
        assert one.take("somebody", 2, 1.0) > 0.0
        assert other.take("somebody else", 2, 1.0) == 0.0


def test_a_bucket_from_before_the_machine_started_is_full(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as buckets:
        assert buckets.take("somebody", 1, 5_000.0) == 0.0
        assert buckets.take("somebody", 1, 1.0) == 0.0
        assert buckets.take("somebody", 1, 1.0) > 0.0


def test_more_callers_than_there_is_room_for_are_let_through(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as buckets:
        for number in range(2 * SLOTS):
            assert buckets.take(f"caller {number}", 1, 1.0 + number) == 0.0
        assert buckets.take(f"caller {number}", 1, 1.0 + number) > 0.0


def test_a_lock_that_nobody_gives_back_stops_nobody(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as buckets, (tmp_path / "buckets").open("rb") as stopped:
        fcntl.flock(stopped, fcntl.LOCK_EX)
        assert buckets.take("somebody", 1, 1.0) == 0.0
        assert buckets.take("somebody", 1, 1.0) > 0.0


# --- problems and the document ----------------------------------------------------------------


def test_an_address_that_there_is_not_is_a_problem_too(people: People) -> None:
    for url in ("/api/v1/none", "/api/v1/projects/x/runs", f"/api/v1/projects/{10**20}"):
        problem_in(Client().get(url), 404)


def test_nobody_learns_anything_without_a_token() -> None:
    refused = Client().get("/api/v1/projects")
    problem_in(refused, 401)
    assert refused["WWW-Authenticate"] == "Bearer"
    problem_in(Program("swb_none").get("me"), 401)


def test_a_list_of_projects_is_the_callers_own(people: People) -> None:
    signed_in = Client()
    signed_in.force_login(people.editor)
    items = signed_in.get("/api/v1/projects").json()["items"]
    assert [(item["id"], item["role"]) for item in items] == [(people.project.pk, "editor")]
    made = signed_in.post("/api/v1/projects", {"name": "New"}, content_type="application/json")
    assert (made.status_code, made.json()["role"]) == (201, "admin")
    program = program_of(people.editor, people.project)
    problem_in(program.post("projects", body={"name": "Other"}), 403)
    assert len(program.get("projects").json()["items"]) == 1


def test_members_are_added_by_admins(people: People) -> None:
    admin = program_of(people.owner, people.project, Role.ADMIN)
    body = {"user": people.stranger.username, "role": "viewer"}
    assert admin.post("members", people.project.pk, body=body).json()["role"] == "viewer"
    told = admin.get("members", people.project.pk).json()["items"]
    assert {item["user"] for item in told} >= {people.stranger.username, people.owner.username}
    editor = program_of(people.editor, people.project)
    problem_in(editor.post("members", people.project.pk, body=body), 403)
    problem_in(admin.post("members", people.project.pk, body={**body, "user": "none"}), 400)


@given(st.integers(0, 2**63 - 1))
def test_a_cursor_is_what_it_was(key: int) -> None:
    from rest_framework.request import Request
    from rest_framework.test import APIRequestFactory

    from orchestrator.api.paging import cursor_of

    request = Request(APIRequestFactory().get("/", {"cursor": encoded(key)}))
    assert cursor_of(request) == key


def test_the_document_is_told_to_everybody_and_drawn_as_a_page() -> None:
    told = Client().get("/api/v1/openapi.json").json()
    assert told["openapi"].startswith("3.1")
    page = Client().get("/api/v1/docs/")
    html = page.content.decode()
    assert page.status_code == 200 and "script-src 'self'" in page["Content-Security-Policy"]
    for methods in told["paths"].values():
        for said in methods.values():
            assert f'id="{said["operationId"]}"' in html


def test_every_scope_has_words_and_every_area_one_scope() -> None:
    assert all(text for text in SCOPES.values())
    assert len(SCOPES) == len(set(SCOPES.values()))
