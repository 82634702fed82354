"""Exports, imports, retention and the storage cap by REST: asked for, followed, taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from orchestrator.jobs.execution import run_attempt
from orchestrator.keeping.models import RetentionRun, Transfer
from orchestrator.projects.models import Project, Role
from orchestrator.projects.services import issue_token
from tests.base import People

pytestmark = pytest.mark.django_db(transaction=True)


def signed_in(people: People, who: str = "owner") -> Client:
    client = Client()
    client.force_login(getattr(people, who))
    return client


def body_of(answer: Any) -> bytes:
    return b"".join(answer)


def run_job(work: Transfer | RetentionRun) -> None:
    work.refresh_from_db()
    assert work.job is not None
    run_attempt(work.job.pk)


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_a_project_goes_out_and_comes_in(people: People) -> None:
    client = signed_in(people)
    at = f"/api/v1/projects/{people.project.pk}/exports"
    asked = client.post(at, {"with_checkpoints": False}, content_type="application/json")
    assert asked.status_code == 202
    export = asked.json()
    assert asked["Location"] == export["url"]
    run_job(Transfer.objects.get(pk=export["id"]))
    export = client.get(export["url"]).json()
    assert (export["state"], export["error"]) == ("completed", "")
    file = client.get(export["file_url"])
    content = body_of(file)
    assert (file["Content-Type"], len(content)) == ("application/zip", export["size_bytes"])
    assert file["Content-Disposition"].startswith("attachment; filename=")

    sent = client.post("/api/v1/imports?name=Twin", content, content_type="application/zip")
    assert sent.status_code == 202, sent.content
    run_job(Transfer.objects.get(pk=sent.json()["id"]))
    twin = client.get(sent.json()["url"]).json()
    assert (twin["state"], twin["error"], twin["name"]) == ("completed", "", "Twin")
    assert Project.objects.get(pk=twin["project"]).name == "Twin"
    # Of somebody else it does not exist.
    assert signed_in(people, "editor").get(twin["url"]).status_code == 404
    # The file goes, the export stays listed.
    assert client.delete(export["url"]).status_code == 204
    assert client.get(export["file_url"] or export["url"]).status_code == 404
    assert client.get(export["url"]).json()["file_url"] is None


def test_what_is_no_archive_is_told_as_a_problem(people: People) -> None:
    sent = signed_in(people).post("/api/v1/imports", b"words", content_type="application/zip")
    assert (sent.status_code, sent["Content-Type"]) == (422, "application/problem+json")
    assert "not a zip file" in sent.json()["detail"]
    secret = issue_token(
        actor=people.owner, project_id=people.project.pk, name="ci", role=Role.ADMIN
    ).secret
    token = {"Authorization": f"Bearer {secret}"}
    sent = Client().post("/api/v1/imports", b"x", content_type="application/zip", headers=token)
    assert sent.status_code == 403


def test_rules_are_set_looked_at_and_taken_back(people: People) -> None:
    client = signed_in(people)
    at = f"/api/v1/projects/{people.project.pk}/retention"
    assert client.post(f"{at}/looks", {}, content_type="application/json").status_code == 422
    rule = {"days": 90, "grace_days": 3, "purposes": ["ci"]}
    made = client.put(f"{at}/rules/traces", json.dumps(rule), content_type="application/json")
    assert (made.status_code, made.json()["days"]) == (200, 90)
    bad = client.put(f"{at}/rules/audit", json.dumps(rule), content_type="application/json")
    assert bad.status_code == 422
    assert "accepts traces, runs" in bad.json()["detail"]
    asked = client.post(f"{at}/looks", {}, content_type="application/json")
    assert (asked.status_code, asked.json()["is_dry"]) == (202, True)
    run_job(RetentionRun.objects.get(pk=asked.json()["id"]))
    look = client.get(asked.json()["url"]).json()
    assert (look["state"], look["found"][0]["what"]) == ("completed", "traces")
    assert client.get(look["events_url"]).json()["has_ended"] is True
    assert client.get(f"{at}/marked").json()["n"] == 0
    assert client.delete(f"{at}/rules/traces").status_code == 204
    assert client.get(f"{at}/rules").json()["items"] == []


def test_the_storage_cap_is_edited_with_its_tag(people: People) -> None:
    client = signed_in(people)
    at = f"/api/v1/projects/{people.project.pk}/limits/storage"
    shown = client.get(at)
    assert (shown.json()["storage_bytes"], shown.json()["used_bytes"]) == (None, 0)
    change = json.dumps({"storage_bytes": 10**9})
    assert client.put(at, change, content_type="application/json").status_code == 428
    match = {"If-Match": shown["ETag"]}
    put = client.put(at, change, content_type="application/json", headers=match)
    assert put.json()["storage_bytes"] == 10**9
    again = client.put(at, change, content_type="application/json", headers=match)
    assert again.status_code == 412
