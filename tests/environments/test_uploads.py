"""Files of tasks taken into a draft: all good rows or none, whatever happens in the middle."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys

import pytest
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import connection

from orchestrator.environments.authoring import tasks, uploads
from orchestrator.environments.authoring.content import content_of
from orchestrator.environments.authoring.errors import DraftConflictError, DraftRefusedError
from orchestrator.environments.authoring.queries import UploadEffect, draft_counts, upload_effect
from orchestrator.environments.authoring.undo import undo_last
from orchestrator.environments.models import EnvironmentDraft, TaskUpload
from tests.base import People, make_people
from tests.environments.drafting import keys_of, make_draft, make_task


def table(n_rows: int, *, n_bad: int = 0) -> str:
    """Terminal tasks as CSV; bad rows, each bad in its way, are spread evenly."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["id", "question", "files", "answer", "split", "group"])
    every = n_rows // n_bad if n_bad else 0
    for n in range(n_rows):
        row = [
            f"q{n:05d}",
            f"q{n}.txt: number of lines",
            json.dumps({f"q{n}.txt": "a\n" * 3}),
            "3",
            ("train", "train", "select", "test")[n % 4],
            f"group {n % 5}",
        ]
        if n_bad and n % every == every - 1:
            faults = {0: (1, ""), 1: (2, "{"), 2: (3, ""), 3: (4, "exam"), 4: (0, "a key!")}
            index, value = faults[n // every % 5]
            row[index] = value
        writer.writerow(row)
    return out.getvalue()


def preview(people: People, draft: EnvironmentDraft, content: str | bytes) -> TaskUpload:
    return uploads.preview_upload(
        actor=people.editor, draft=draft, filename="tasks.csv", content=content
    )


def apply(people: People, upload: TaskUpload, mode: str) -> uploads.Applied:
    draft = EnvironmentDraft.objects.get(pk=upload.draft_id)
    return uploads.apply_upload(
        actor=people.editor, upload=upload, mode=mode, revision=draft.revision
    )


def test_a_preview_changes_nothing_and_says_what_it_found(people: People) -> None:
    draft = make_draft(people, make_task("q00001"), make_task("old"))
    upload = preview(people, draft, table(40, n_bad=4))
    assert upload.summary == {
        "n_tasks": 36,
        "splits": {"train": 18, "select": 10, "test": 8},
        "families": 5,
        "n_bad_rows": 4,
        "n_errors": 4,
        "unused": [],
    }
    assert keys_of(draft) == ["old", "q00001"]
    assert upload_effect(draft, upload) == UploadEffect(n_new=35, n_same_key=1, n_removed=1)
    assert [error["line"] for error in upload.errors] == [11, 21, 31, 41]


def test_adding_keeps_the_others_and_replaces_the_same_key(people: People) -> None:
    draft = make_draft(people, make_task("q00001"), make_task("old"))
    assert apply(people, preview(people, draft, table(8)), "add") == uploads.Applied(7, 1, 0)
    assert draft.tasks.count() == 9
    assert draft.tasks.get(key="q00001").prompt == "q1.txt: number of lines"
    assert draft.tasks.get(key="q00001").reset == {"task": "q00001"}


def test_replacing_leaves_only_the_rows(people: People) -> None:
    draft = make_draft(people, make_task("q00001"), make_task("old"))
    assert apply(people, preview(people, draft, table(8)), "replace") == uploads.Applied(7, 1, 1)
    assert draft_counts(draft) == {"train": 4, "select": 2, "test": 2}


@pytest.mark.parametrize("mode", ["add", "replace"])
def test_an_upload_is_undone(people: People, mode: str) -> None:
    draft = make_draft(people, make_task("q00001"), make_task("old"))
    before = [content_of(row) for row in draft.tasks.all()]
    apply(people, preview(people, draft, table(8)), mode)
    draft.refresh_from_db()
    assert undo_last(actor=people.editor, draft=draft, revision=draft.revision) == (
        "upload of tasks.csv"
    )
    assert [content_of(row) for row in draft.tasks.all()] == before


def test_an_upload_is_applied_once(people: People) -> None:
    draft = make_draft(people)
    upload = preview(people, draft, table(8))
    apply(people, upload, "add")
    with pytest.raises(DraftRefusedError, match="applied already"):
        apply(people, upload, "add")
    assert TaskUpload.objects.get(pk=upload.pk).rows == []


def test_a_preview_that_was_overtaken_is_not_applied_unseen(people: People) -> None:
    draft = make_draft(people, make_task("old"))
    upload = preview(people, draft, table(8))
    looked_at = draft.revision
    tasks.save_task(actor=people.owner, draft=draft, task=make_task("new"))
    with pytest.raises(DraftConflictError):
        uploads.apply_upload(actor=people.editor, upload=upload, mode="replace", revision=looked_at)
    assert keys_of(draft) == ["new", "old"]


def test_a_later_preview_ends_the_earlier_one(people: People) -> None:
    draft = make_draft(people)
    first, second = (preview(people, draft, table(n)) for n in (8, 4))
    with pytest.raises(DraftRefusedError, match="discarded already"):
        apply(people, first, "add")
    uploads.discard_upload(actor=people.editor, upload=second)
    with pytest.raises(DraftRefusedError, match="discarded already"):
        apply(people, second, "add")


def test_a_file_of_bad_rows_alone_cannot_be_applied(people: People) -> None:
    draft = make_draft(people, make_task("old"))
    upload = preview(people, draft, "key,prompt,split\na,b,nowhere\n")
    assert upload.summary["n_bad_rows"] == 1
    with pytest.raises(DraftRefusedError, match="no good row"):
        apply(people, upload, "replace")
    assert keys_of(draft) == ["old"]


def test_viewers_neither_read_in_nor_apply(people: People) -> None:
    draft = make_draft(people)
    with pytest.raises(PermissionDenied):
        uploads.preview_upload(actor=people.member, draft=draft, filename="t.csv", content=table(4))
    upload = preview(people, draft, table(4))
    with pytest.raises(PermissionDenied):
        uploads.apply_upload(
            actor=people.member, upload=upload, mode="add", revision=draft.revision
        )


KILLED = """
import os, signal, django
django.setup()
from django.db import connection
from orchestrator.environments.authoring.uploads import apply_upload
from orchestrator.environments.models import TaskUpload

upload = TaskUpload.objects.select_related("draft__environment", "created_by").get(pk={upload})
n_inserts = 0

def die_in_the_middle(execute, sql, params, many, context):
    global n_inserts
    done = execute(sql, params, many, context)
    if sql.startswith("INSERT INTO") and "drafttask" in sql:
        n_inserts += 1
        if n_inserts == 3:
            os.kill(os.getpid(), signal.SIGKILL)
    return done

with connection.execute_wrapper(die_in_the_middle):
    apply_upload(actor=upload.created_by, upload=upload, mode="{mode}", revision={revision})
"""


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("mode", ["add", "replace"])
def test_a_kill_in_the_middle_leaves_none_of_the_rows(mode: str) -> None:
    people = make_people()
    draft = make_draft(people, make_task("q00001"), make_task("old"))
    before = [content_of(row) for row in draft.tasks.all()]
    upload = preview(people, draft, table(4_000))
    environ = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "SWITCHBACK_TEST_DATABASE": str(connection.settings_dict["NAME"]),
    }
    code = KILLED.format(upload=upload.pk, mode=mode, revision=draft.revision)
    killed = subprocess.run(
        [sys.executable, "-c", code], cwd=settings.BASE_DIR, env=environ, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert [content_of(row) for row in draft.tasks.all()] == before
    draft.refresh_from_db()
    assert apply(people, upload, mode).n_added == 3_999
