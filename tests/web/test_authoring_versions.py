"""Versions through the pages: published, compared, taken away, brought back."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client
from django.urls import reverse

from orchestrator.environments.authoring import tasks
from orchestrator.environments.authoring.content import content_of, digest_of
from orchestrator.environments.models import (
    Environment,
    EnvironmentVersion,
    TaskUpload,
)
from tests.base import People
from tests.environments.drafting import make_draft, make_task
from tests.web.build import make_run
from tests.web.test_authoring import address, again, publish, text_of


@pytest.fixture
def client(people: People) -> Client:
    client = Client()
    client.force_login(people.editor)
    return client


def test_publishing_names_what_is_missing(people: People, client: Client) -> None:
    draft = make_draft(people)
    page = client.get(address(draft, "draft_publish"))
    assert "There is no task yet" in text_of(page)
    response = client.post(address(draft, "draft_publish"), {"revision": draft.revision})
    assert response.status_code == 422
    assert "There is no task yet" in text_of(response)
    tasks.save_task(actor=people.owner, draft=draft, task=make_task("q1"))
    stale = client.post(
        address(draft, "draft_publish"), {"revision": draft.revision, "note": "kept words"}
    )
    assert stale.status_code == 409
    assert "kept words" in text_of(stale)
    assert not EnvironmentVersion.objects.exists()


def test_versions_are_compared_and_sealed_answers_stay_sealed(
    people: People, client: Client
) -> None:
    def spec(answer: str) -> dict[str, Any]:
        return {"files": {}, "answer": answer, "match": "exact", "max_steps": 4}

    first = publish(
        people,
        make_draft(
            people,
            make_task("open", spec=spec("oldopen")),
            make_task("shut", split="test", spec=spec("oldshut")),
            make_task("gone"),
        ),
    )
    draft = again(people, first)
    for key, split in (("open", "train"), ("shut", "test")):
        row = draft.tasks.get(key=key)
        tasks.save_task(
            actor=people.editor,
            draft=draft,
            task=make_task(key, split=split, spec=spec(f"new{key}")),
            key=key,
            seen=digest_of(content_of(row)),
        )
    tasks.delete_tasks(actor=people.editor, draft=draft, keys=["gone"])
    review = text_of(client.get(address(draft, "draft_publish")))
    assert "touch the sealed test split" in review
    publish(people, draft)
    url = address(draft, "environment_compare")
    for_editor = text_of(client.get(url))
    assert "oldopen" in for_editor and "newopen" in for_editor
    assert "oldshut" not in for_editor and "newshut" not in for_editor
    client.force_login(people.member)
    for_viewer = text_of(client.get(url))
    for secret in ("oldopen", "newopen", "oldshut", "newshut"):
        assert secret not in for_viewer
    assert "gone" in for_viewer
    assert "No difference" in text_of(client.get(url, {"from": "2", "to": "2"}))


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_an_export_comes_back_as_the_same_tasks(
    people: People, client: Client, format: str
) -> None:
    draft = make_draft(
        people, make_task("q1", difficulty=2.5, seeds=[3]), make_task("q2", split="test")
    )
    before = [digest_of(content_of(row)) for row in draft.tasks.all()]
    asked = {"version": "draft", "format": format}
    taken = client.get(address(draft, "environment_export"), asked)
    content = b"".join(taken)
    file = SimpleUploadedFile(f"tasks.{format}", content)
    client.post(address(draft, "draft_upload"), {"file": file})
    upload = TaskUpload.objects.get()
    assert upload.errors == []
    client.post(
        address(draft, "upload_preview", upload.pk),
        {"action": "apply", "mode": "replace", "revision": draft.revision},
    )
    assert [digest_of(content_of(row)) for row in draft.tasks.all()] == before


def test_a_folder_goes_out_and_comes_back_as_the_same_version(
    people: People, client: Client
) -> None:
    version = publish(people, make_draft(people, make_task("q1"), make_task("q2", split="test")))
    environment = version.environment
    url = reverse("web:environment_export", args=[people.project.pk, environment.slug])
    content = client.get(url).content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert sorted(archive.namelist()) == [
            "small-files-v1/environment.yaml",
            "small-files-v1/tasks.jsonl",
        ]
    new = reverse("web:environment_new", args=[people.project.pk])
    client.post(new, {"folder": SimpleUploadedFile("e.zip", content)})
    assert environment.versions.count() == 1
    client.post(reverse("web:environment_delete", args=[people.project.pk, environment.slug]))
    assert not Environment.objects.exists()
    client.post(new, {"folder": SimpleUploadedFile("e.zip", content)})
    assert EnvironmentVersion.objects.get().sha256 == version.sha256


def archive_of(**files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "."), text)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"not a zip", "is not a zip file"),
        (archive_of(readme__md="x"), "has no environment.yaml"),
        (archive_of(environment__yaml="name: X\nkind: nope\n"), "kind is"),
    ],
)
def test_a_zip_that_is_no_environment_says_why(
    people: People, client: Client, content: bytes, reason: str
) -> None:
    new = reverse("web:environment_new", args=[people.project.pk])
    response = client.post(new, {"folder": SimpleUploadedFile("e.zip", content)})
    assert response.status_code == 422
    assert reason in text_of(response)
    assert not Environment.objects.exists()


def test_what_is_used_is_not_deleted_and_says_why(people: People, client: Client) -> None:
    version = publish(people, make_draft(people, make_task("q1")))
    make_run(people.project, environment_version=version)
    url = reverse("web:environment_delete", args=[people.project.pk, version.environment.slug])
    response: HttpResponse = client.post(url, follow=True)  # type: ignore[assignment] # a test response
    assert "runs name its versions" in text_of(response)
    assert "Delete this environment" not in text_of(response)
