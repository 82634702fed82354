"""Tables of tasks through the pages: looked at, taken in, refused."""

from __future__ import annotations

import csv
import io
import time

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from orchestrator.environments.authoring import tasks
from orchestrator.environments.models import (
    TaskUpload,
)
from tests.base import People
from tests.environments.drafting import keys_of, make_draft, make_task
from tests.environments.test_uploads import table
from tests.web.test_authoring import address, text_of


@pytest.fixture
def client(people: People) -> Client:
    client = Client()
    client.force_login(people.editor)
    return client


def test_ten_thousand_rows_with_thirty_bad_ones(people: People, client: Client) -> None:
    """Through the real pages, as a file. The measured time is printed."""
    draft = make_draft(people, make_task("old"))
    content = table(10_000, n_bad=30)
    began = time.perf_counter()
    file = SimpleUploadedFile("tasks.csv", content.encode())
    shown = client.post(address(draft, "draft_upload"), {"file": file}, follow=True)
    read_s = time.perf_counter() - began
    html = text_of(shown)
    upload = TaskUpload.objects.get()
    assert (upload.summary["n_tasks"], upload.summary["n_bad_rows"]) == (9_970, 30)
    assert "Take in 9,970 tasks" in html
    bad_lines = [error["line"] for error in upload.errors]
    every = 10_000 // 30
    assert bad_lines == [every * n + 1 for n in range(1, 31)]
    for line in bad_lines:
        assert f'data-label="Line">{line}<' in html
    assert {error["field"] for error in upload.errors} == {
        "prompt",
        "files",
        "answer",
        "split",
        "key",
    }
    assert keys_of(draft) == ["old"]
    listed = client.get(address(draft, "upload_errors", upload.pk))
    rows = list(csv.DictReader(io.StringIO(b"".join(listed).decode(), newline="")))
    assert [int(row["line"]) for row in rows] == bad_lines
    assert all(row["reason"] and row["row"] for row in rows)
    began = time.perf_counter()
    draft.refresh_from_db()
    client.post(
        address(draft, "upload_preview", upload.pk),
        {"action": "apply", "mode": "add", "revision": draft.revision},
    )
    apply_s = time.perf_counter() - began
    assert draft.tasks.count() == 9_971
    print(f"read {read_s:.2f} s, applied {apply_s:.2f} s")
    assert client.get(address(draft, "draft"), {"page": "50"}).status_code == 200


def test_pasted_rows_and_the_split_of_those_that_name_none(people: People, client: Client) -> None:
    draft = make_draft(people)
    rows = '{"id": "a", "question": "a.txt: first line", "files": {"a.txt": "x"}, "answer": "x"}'
    shown = client.post(
        address(draft, "draft_upload"), {"rows": rows, "split": "select"}, follow=True
    )
    assert "Take in 1 task" in text_of(shown)
    upload = TaskUpload.objects.get()
    client.post(
        address(draft, "upload_preview", upload.pk),
        {"action": "apply", "mode": "replace", "revision": draft.revision},
    )
    assert dict(draft.tasks.values_list("key", "split")) == {"a": "select"}


def test_an_upload_that_was_overtaken_asks_to_look_again(people: People, client: Client) -> None:
    draft = make_draft(people, make_task("old"))
    file = SimpleUploadedFile("tasks.csv", table(8).encode())
    client.post(address(draft, "draft_upload"), {"file": file})
    upload = TaskUpload.objects.get()
    tasks.save_task(actor=people.owner, draft=draft, task=make_task("new"))
    response = client.post(
        address(draft, "upload_preview", upload.pk),
        {"action": "apply", "mode": "replace", "revision": draft.revision},
    )
    assert response.status_code == 409
    assert "Look at the counts again" in text_of(response)
    assert "2 of the draft’s tasks go" in text_of(response)
    assert keys_of(draft) == ["new", "old"]
    client.post(address(draft, "upload_preview", upload.pk), {"action": "discard"})
    assert "is discarded" in text_of(client.get(address(draft, "upload_preview", upload.pk)))


def test_nothing_chosen_and_too_much_are_refused(
    people: People, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = make_draft(people)
    nothing = client.post(address(draft, "draft_upload"), {"rows": " "})
    assert nothing.status_code == 422
    assert "Choose a file, or paste rows" in text_of(nothing)
    monkeypatch.setattr("orchestrator.environments.authoring.uploads.MAX_BYTES", 2**20)
    file = SimpleUploadedFile("tasks.csv", b"x" * (3 * 2**20))
    large = client.post(address(draft, "draft_upload"), {"file": file})
    assert large.status_code == 422
    assert "the limit of a file is 1 MiB" in text_of(large)
    assert not TaskUpload.objects.exists()


def test_text_of_a_file_is_never_markup(people: People, client: Client) -> None:
    draft = make_draft(people)
    nasty = "<script>alert(1)</script>"
    rows = (
        f'key,prompt,answer,files,"{nasty}"\n{nasty},{nasty},x,"{{}}",x\ngood,{nasty},x,"{{}}",y\n'
    )
    shown = client.post(address(draft, "draft_upload"), {"rows": rows}, follow=True)
    assert "&lt;script&gt;" in text_of(shown)
    assert nasty not in text_of(shown)
