"""Pages of exports, imports, retention and of what a project keeps."""

from __future__ import annotations

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from orchestrator.jobs.execution import run_attempt
from orchestrator.keeping import use
from orchestrator.keeping.models import RetentionMark, RetentionRule, RetentionRun, Transfer
from orchestrator.projects import storage
from tests.base import People

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def admin(people: People) -> Client:
    client = Client()
    client.force_login(people.owner)
    return client


def url(people: People, name: str, *args: object) -> str:
    return reverse(f"web:{name}", args=[people.project.pk, *args])


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")
def test_a_project_is_exported_and_brought_in(people: People, admin: Client) -> None:
    page = url(people, "archives")
    assert "No export yet" in admin.get(page).content.decode()
    assert admin.post(url(people, "export_start")).status_code == 302
    transfer = Transfer.objects.get()
    assert transfer.job is not None
    shown = admin.get(page).content.decode()
    assert "data-again" in shown and "Cancel" in shown
    run_attempt(transfer.job.pk)
    shown = admin.get(page).content.decode()
    assert "Download" in shown and "data-again" not in shown
    content = b"".join(admin.get(url(people, "export_file", transfer.pk)))
    file = SimpleUploadedFile("words.zip", content)
    assert (
        admin.post(url(people, "project_import"), {"file": file, "name": "Twin"}).status_code == 302
    )
    brought = Transfer.objects.get(direction="import")
    assert brought.job is not None
    run_attempt(brought.job.pk)
    brought.refresh_from_db()
    assert reverse("web:overview", args=[brought.project_id]) in admin.get(page).content.decode()
    admin.post(url(people, "export_action", transfer.pk, "remove"))
    assert "file removed" in admin.get(page).content.decode()
    assert admin.get(url(people, "export_file", transfer.pk)).status_code == 404


def test_what_is_no_archive_is_told_by_its_name(people: People, admin: Client) -> None:
    file = SimpleUploadedFile("notes.zip", b"words")
    answer = admin.post(url(people, "project_import"), {"file": file})
    assert answer.status_code == 422
    assert "notes.zip: This is not a zip file." in answer.content.decode()
    assert admin.post(url(people, "project_import")).status_code == 422


def test_rules_are_set_tried_and_removed(people: People, admin: Client) -> None:
    page = url(people, "retention")
    assert "Everything is kept" in admin.get(page).content.decode()
    form = {"what": "traces", "days": 30, "grace_days": 0, "purposes": ["ci"]}
    assert admin.post(url(people, "retention_rule"), form).status_code == 302
    assert RetentionRule.objects.get().purposes == ["ci"]
    admin.post(url(people, "retention_look"))
    run = RetentionRun.objects.get()
    assert run.is_dry and run.job is not None
    run_attempt(run.job.pk)
    assert "Would be marked" in admin.get(page).content.decode()
    bad = admin.post(url(people, "retention_rule"), {**form, "days": 0})
    assert bad.status_code == 422
    bad = admin.post(url(people, "retention_rule"), {**form, "what": "deliveries"})
    assert "only for traces and runs" in bad.content.decode()
    admin.post(url(people, "retention_rule"), {"what": "traces", "remove": "1"})
    assert not RetentionRule.objects.exists()


def test_what_is_marked_is_kept_and_let_go(people: People, admin: Client) -> None:
    run = RetentionRun.objects.create(project=people.project, is_dry=False, state="completed")
    RetentionMark.objects.create(
        project=people.project, run=run, what="runs", object_id=7, due_at=run.created_at
    )
    editor = Client()
    editor.force_login(people.editor)
    assert "1 thing marked" in editor.get(url(people, "retention")).content.decode()
    editor.post(url(people, "retention_keep"))
    assert RetentionMark.objects.get().kept_by == people.editor
    assert editor.post(url(people, "retention_let_go")).status_code == 403
    admin.post(url(people, "retention_let_go"))
    assert not RetentionMark.objects.exists()


def test_the_limits_page_shows_what_is_kept(people: People, admin: Client) -> None:
    use.measure()
    page = url(people, "limits")
    assert "0 bytes, no cap" in admin.get(page).content.decode()
    admin.post(page, {"rollouts_per_day": "", "usd_per_day": "", "storage_gb": "0"})
    assert storage.storage_of(people.project.pk).cap == 0
    assert "The project is full" in admin.get(page).content.decode()
