"""Who changed what: entries of changes, of refusals, without secrets, and none of reading."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.projects.audit.record import HIDDEN, Record, acting
from orchestrator.projects.models import AuditEntry, Role
from orchestrator.projects.services import issue_token, set_member
from tests.base import People
from tests.web.build import make_run


def test_a_token_made_and_revoked_leaves_two_entries_without_its_digest(
    people: People, client: Client
) -> None:
    client.force_login(people.owner)
    project = people.project
    settings = reverse("web:settings", args=[project.pk])
    client.post(settings, {"name": "ci", "role": "viewer"})
    (made,) = AuditEntry.objects.all()
    assert (made.username, made.project, made.action) == (
        people.owner.username,
        project,
        "web:settings",
    )
    (change,) = made.changes
    assert change["kind"] == "API token"
    assert change["what"] == "created"
    assert change["fields"]["name"] == [None, "ci"]
    assert change["fields"]["digest"] == [None, HIDDEN]
    client.post(reverse("web:token_revoke", args=[project.pk, change["id"]]))
    ended = AuditEntry.objects.latest("pk")
    assert ended.action == "web:token_revoke"
    assert ended.changes[0]["fields"]["revoked_at"][0] is None


def test_a_change_by_one_update_has_an_entry_too(people: People, client: Client) -> None:
    run = make_run(people.project)
    client.force_login(people.owner)
    client.post(reverse("web:run_cancel", args=[people.project.pk, run.pk]))
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.project, entry.status) == ("web:run_cancel", people.project, 302)


def test_what_a_role_does_not_allow_is_kept_and_reading_is_not(
    people: People, client: Client
) -> None:
    run = make_run(people.project)
    set_member(
        actor=people.owner, project_id=people.project.pk, user=people.stranger, role=Role.VIEWER
    )
    client.force_login(people.stranger)
    client.get(reverse("web:runs", args=[people.project.pk]))
    assert not AuditEntry.objects.exists()
    client.post(reverse("web:run_cancel", args=[people.project.pk, run.pk]))
    entry = AuditEntry.objects.get()
    assert (entry.status, entry.username, entry.changes) == (403, people.stranger.username, [])


def test_a_stranger_leaves_nothing_in_a_project_that_is_not_theirs(
    people: People, client: Client
) -> None:
    run = make_run(people.project)
    client.force_login(people.stranger)
    client.post(reverse("web:run_cancel", args=[people.project.pk, run.pk]))
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(("door", "body"), [("ingest", "[]"), ("otlp_traces", "{}")])
def test_records_that_a_program_brings_in_are_no_changes(
    people: People, client: Client, door: str, body: str
) -> None:
    issued = issue_token(
        actor=people.owner, project_id=people.project.pk, name="ci", role=Role.EDITOR
    )
    response = client.post(
        reverse(f"api:{door}", args=[people.project.pk]),
        data=body,
        content_type="application/json",
        headers={"Authorization": f"Bearer {issued.secret}"},
    )
    assert response.status_code == 200
    assert not AuditEntry.objects.exists()


@pytest.mark.django_db
def test_a_saved_model_tells_before_and_after(people: People) -> None:
    name = people.project.name
    with acting() as record:
        people.project.name = "Another hill"
        people.project.save()
    (change,) = record.changes
    assert change["fields"] == {"name": [name, "Another hill"]}


def test_many_changes_are_counted_and_one_object_is_named_once() -> None:
    record = Record()
    for number in range(60):
        record.add("task", number, f"task {number}", "created", {}, {"n": number})
    assert (len(record.changes), record.more) == (50, 10)
    record = Record()
    record.add("run", 1, "run 1", "changed", {"state": "queued"}, {"state": "running"})
    record.add("run", 1, "run 1", "changed", {"state": "running"}, {"state": "cancelled"})
    assert [change["fields"] for change in record.changes] == [{"state": ["queued", "cancelled"]}]
    record.add("run", 2, "run 2", "changed", {"state": "queued"}, {"state": "queued"})
    assert len(record.changes) == 1
