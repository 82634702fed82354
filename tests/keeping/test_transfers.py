"""Exports and imports as jobs: who may ask, what is left after a failure or a cancel."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from orchestrator.blobs.services import store
from orchestrator.events.models import Stream
from orchestrator.jobs.execution import run_attempt
from orchestrator.keeping.archive import services
from orchestrator.keeping.errors import ArchiveInvalid, KeepingRefused
from orchestrator.keeping.models import Transfer
from orchestrator.projects.access import role_in
from orchestrator.projects.models import Project, User
from tests.base import People, make_user
from tests.keeping.filled import Filler

pytestmark = pytest.mark.django_db(transaction=True)


def run(transfer: Transfer) -> Transfer:
    assert transfer.job is not None
    run_attempt(transfer.job.pk)
    transfer.refresh_from_db()
    return transfer


def exported(people: People, tmp_path: Path) -> bytes:
    Stream.objects.create(project=people.project, kind="run")
    transfer = run(services.start_export(actor=people.owner, project=people.project))
    assert (transfer.state, transfer.error) == ("completed", "")
    assert transfer.summary["rows"] == {"events.Stream": 1}
    return store().read(transfer.file_sha256)


def test_admins_export_and_nobody_else(people: People) -> None:
    for user in (people.member, people.editor):
        with pytest.raises(PermissionDenied):
            services.start_export(actor=user, project=people.project)
    with pytest.raises(Http404):
        services.start_export(actor=people.stranger, project=people.project)
    first = services.start_export(actor=people.owner, project=people.project)
    assert services.start_export(actor=people.owner, project=people.project) == first


def test_an_import_is_seen_when_it_is_whole(people: People, tmp_path: Path) -> None:
    content = exported(people, tmp_path)
    friend = make_user()
    transfer = services.start_import(actor=friend, file=[content], name="Mine")
    assert not Project.objects.filter(name="Mine").exists()
    run(transfer)
    assert (transfer.state, transfer.error) == ("completed", "")
    project = transfer.project
    assert project is not None and project.name == "Mine"
    assert role_in(friend, project.pk) == "admin"
    assert role_in(people.owner, project.pk) is None
    assert transfer.file_sha256 == ""


def test_what_is_no_archive_is_refused_at_the_door(people: People) -> None:
    with pytest.raises(ArchiveInvalid, match="not a zip file"):
        services.start_import(actor=people.owner, file=[b"words"])
    assert not Transfer.objects.exists()


def test_a_file_beyond_the_limit_is_cut_off_while_it_comes(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("django.conf.settings.MAX_ARCHIVE_BYTES", 10)
    with pytest.raises(KeepingRefused, match="more than 10 bytes"):
        services.start_import(actor=people.owner, file=[b"12345678", b"9abc"])


def test_a_cancelled_import_leaves_nothing(people: People, tmp_path: Path) -> None:
    content = exported(people, tmp_path)
    projects, users = Project.objects.count(), User.objects.count()
    transfer = services.start_import(actor=people.owner, file=[content])
    assert transfer.job is not None
    with pytest.raises(Http404):
        services.cancel(actor=people.editor, transfer=transfer)
    services.cancel(actor=people.owner, transfer=transfer)
    run(transfer)
    assert transfer.state == "cancelled"
    assert (Project.objects.count(), User.objects.count()) == (projects, users)


def test_an_import_that_was_killed_begins_anew(people: People, tmp_path: Path) -> None:
    """What a worker left half done when it was killed is taken away by the next attempt."""
    content = exported(people, tmp_path)
    transfer = services.start_import(actor=people.owner, file=[content], name="Mine")
    half = Project.objects.create(name="Mine")
    Filler(half).fill()
    Transfer.objects.filter(pk=transfer.pk).update(draft_id=half.pk)
    run(transfer)
    assert transfer.state == "completed"
    assert not Project.objects.filter(pk=half.pk).exists()
    assert Project.objects.filter(name="Mine").count() == 1


def test_the_file_goes_when_somebody_removes_it(people: People, tmp_path: Path) -> None:
    exported(people, tmp_path)
    transfer = Transfer.objects.get()
    services.remove_file(actor=people.owner, transfer=transfer)
    transfer.refresh_from_db()
    assert transfer.file_sha256 == ""
    assert transfer.size_bytes > 0
