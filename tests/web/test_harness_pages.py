"""The pages of harnesses: who may see and change what, and what comes back."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from optimizer.harness import Harness, import_zip
from optimizer.models import HarnessVersion, Release
from optimizer.store import load_harness, store_harness
from orchestrator.searches import releases
from tests.base import People
from tests.web.harness_rows import BETTER, FULL, SEED, Shelf, make_shelf

READING = ("harnesses", "harness", "harness_export", "harness_diff", "harness_compare", "releases")
EDITING = ("harness_import", "harness_edit")
CHANGING = ("harness_label", "harness_release", "release_roll_back")
PAGES = {*READING, *EDITING}
WRITES = set(CHANGING)
"""Compared with all addresses in `test_access`."""


@pytest.fixture
def shelf(people: People) -> Shelf:
    return make_shelf(people)


Url = Callable[..., str]


@pytest.fixture
def url(people: People, shelf: Shelf) -> Url:
    arguments: dict[str, list[int]] = {
        "harness": [shelf.full.pk],
        "harness_export": [shelf.full.pk],
        "harness_edit": [shelf.full.pk],
        "harness_label": [shelf.full.pk],
        "harness_release": [shelf.full.pk],
        "harness_diff": [shelf.seed.pk, shelf.full.pk],
        "release_roll_back": [shelf.release.pk],
    }

    def of(name: str, *own: int) -> str:
        return reverse(f"web:{name}", args=[people.project.pk, *(own or arguments.get(name, []))])

    return of


def versions(people: People) -> int:
    return HarnessVersion.objects.filter(project=people.project).count()


# --- who ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*READING, *EDITING])
def test_pages_are_for_members_and_editing_is_for_editors(
    people: People, shelf: Shelf, url: Url, client: Client, name: str
) -> None:
    data = {"from": shelf.seed.pk, "to": shelf.full.pk}
    good = 302 if name == "harness_compare" else 200
    for user, status in (
        (people.editor, good),
        (people.member, good if name in READING else 403),
        (people.stranger, 404),
    ):
        client.force_login(user)
        assert client.get(url(name), data).status_code == status
    client.logout()
    assert client.get(url(name), data)["Location"].startswith("/accounts/login/")


@pytest.mark.parametrize("name", [*CHANGING, *EDITING])
def test_only_editors_change_anything(people: People, url: Url, client: Client, name: str) -> None:
    before = versions(people)
    for user, status in ((people.member, 403), (people.stranger, 404)):
        client.force_login(user)
        assert client.post(url(name)).status_code == status
    client.force_login(people.owner)
    assert client.get(url(name)).status_code == (405 if name in CHANGING else 200)
    assert versions(people) == before
    assert not Release.objects.exclude(rolled_back_at=None).exists()


def test_a_harness_of_another_project_is_not_found(
    people: People, url: Url, client: Client
) -> None:
    elsewhere = people.stranger.memberships.get().project
    foreign = store_harness(project_id=elsewhere.pk, harness=Harness())
    client.force_login(people.owner)
    for name in ("harness", "harness_export", "harness_edit"):
        assert client.get(url(name, foreign.pk)).status_code == 404


# --- what is shown --------------------------------------------------------------------------------


def test_the_list_names_parts_use_gain_and_release(
    people: People, shelf: Shelf, url: Url, client: Client
) -> None:
    client.force_login(people.member)
    page = client.get(url("harnesses")).content.decode()
    assert shelf.tried.short not in page
    for text in (
        "support agent",
        "2 skills",
        "+14.2",
        "Terminal files",
        f"search {shelf.search.pk}",
    ):
        assert text in page
    assert shelf.tried.short in client.get(url("harnesses"), {"show": "all"}).content.decode()
    nothing = client.get(url("harnesses"), {"find": "nobody"}).content.decode()
    assert "No harness matches this filter" in nothing


def test_an_empty_library_names_the_next_step(people: People, client: Client) -> None:
    client.force_login(people.editor)
    here = reverse("web:harnesses", args=[people.project.pk])
    assert "Import a harness" in client.get(here).content.decode()
    here = reverse("web:releases", args=[people.project.pk])
    assert "Nothing is released yet" in client.get(here).content.decode()


def test_one_harness_is_shown_part_by_part(
    people: People, shelf: Shelf, url: Url, client: Client
) -> None:
    client.force_login(people.member)
    page = client.get(url("harness")).content.decode()
    for text in (
        "Never open a file with an editor.",
        "Counts lines, words and matches in files.",
        "hc-version: 1",
        "references/wc.md",
        "each task is told the 2 whose task is worded most like its own",
        "wc -l &lt; list7.txt",
        "Two or three words.",
        "0.2",
        "5 of 8",
        f"counts in {shelf.version.environment.name}",
    ):
        assert text in page, text
    # Viewers are offered nothing that they may not do.
    assert "harness_edit" not in page
    assert f"/harnesses/{shelf.full.pk}/edit/" not in page


def test_a_difference_marks_words(shelf: Shelf, people: People, url: Url, client: Client) -> None:
    client.force_login(people.member)
    page = client.get(url("harness_diff")).content.decode()
    assert "skills/count-lines/SKILL.md" in page
    assert "<b>Look</b>" in page
    assert "added" in page
    same = client.get(url("harness_diff", shelf.seed.pk, shelf.seed.pk)).content.decode()
    assert "This is one harness on both sides" in same
    chosen = client.get(url("harness_compare"), {"from": shelf.seed.pk, "to": shelf.full.pk})
    assert chosen["Location"] == url("harness_diff")
    assert client.get(url("harness_compare"), {"from": "x"}).status_code == 404


def test_the_run_page_links_harnesses_and_counts_loads(
    people: People, shelf: Shelf, client: Client
) -> None:
    client.force_login(people.member)
    here = reverse("web:run", args=[people.project.pk, shelf.run.pk])
    page = client.get(here).content.decode()
    assert "loaded when the agent decided to" in page
    assert "5 of 8" in page


def test_a_new_run_is_proposed_what_is_released(
    people: People, shelf: Shelf, client: Client
) -> None:
    client.force_login(people.editor)
    here = reverse("web:run_start", args=[people.project.pk])
    slug = shelf.version.environment.slug

    def proposed(**asked: int) -> int:
        words: dict[str, str | int] = {"environment": slug, **asked}
        form = client.get(here, words).context["form"]
        return int(form.initial["harness"])

    assert proposed() == shelf.full.pk
    releases.roll_back(actor=people.editor, release=shelf.release)
    assert proposed() == shelf.seed.pk
    assert proposed(harness=shelf.tried.pk) == shelf.tried.pk


# --- out and in -----------------------------------------------------------------------------------


def test_what_is_exported_is_imported_as_the_same(
    people: People, shelf: Shelf, url: Url, client: Client
) -> None:
    client.force_login(people.editor)
    answer = client.get(url("harness_export"))
    assert f'filename="support-agent-{shelf.full.short}.zip"' in answer["Content-Disposition"]
    assert import_zip(answer.content).sha256 == FULL.sha256
    before = versions(people)
    sent = {"archive": SimpleUploadedFile("h.zip", answer.content), "label": "again"}
    done = client.post(url("harness_import"), sent, follow=True)
    assert done.redirect_chain[-1][0] == url("harness", shelf.full.pk)
    assert f"has this harness already: {shelf.full.short}" in done.content.decode()
    assert versions(people) == before


def test_a_folder_is_imported_with_its_paths(people: People, url: Url, client: Client) -> None:
    client.force_login(people.editor)
    other = FULL.components() | {"instructions.md": "Other.\n"}
    files = [SimpleUploadedFile(path.rsplit("/", 1)[-1], b"x") for path in other]
    for file, text in zip(files, other.values(), strict=True):
        file.seek(0)
        file.truncate()
        file.write(text.encode())
        file.size = len(text.encode())
        file.seek(0)
    paths = json.dumps([f"mine/{path}" for path in other])
    done = client.post(
        url("harness_import"), {"files": files, "paths": paths, "label": "from a folder"}
    )
    assert done.status_code == 302
    stored = HarnessVersion.objects.get(project=people.project, label="from a folder")
    assert load_harness(stored).components() == other


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"instructions.md": "x", "note.txt": "y"}, "note.txt: not part of a harness"),
        ({"../instructions.md": "x"}, "leads outside of the folder"),
        ({"skills/a/SKILL.md": "---\nname: b\n---\n"}, "must equal the folder name"),
    ],
)
def test_what_is_no_harness_is_refused_with_the_file(
    people: People, url: Url, client: Client, files: dict[str, str], told: str
) -> None:
    client.force_login(people.editor)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    before = versions(people)
    sent = {"archive": SimpleUploadedFile("h.zip", buffer.getvalue())}
    answer = client.post(url("harness_import"), sent)
    assert answer.status_code == 422
    assert told in answer.content.decode().replace("&#x27;", "'")
    nothing = client.post(url("harness_import"))
    assert "Choose a zip file or a folder." in nothing.content.decode()
    assert versions(people) == before


# --- changes --------------------------------------------------------------------------------------


def post(client: Client, here: str, **fields: Any) -> Any:
    return client.post(here, fields)


def test_a_change_is_shown_and_then_saved(
    people: People, shelf: Shelf, url: Url, client: Client
) -> None:
    client.force_login(people.editor)
    here = url("harness_edit", shelf.seed.pk)
    text = BETTER.replace("\n", "\r\n")  # as browsers send it
    fields = {"file": "instructions.md", "text": text, "label": "better words"}
    before = versions(people)
    shown = post(client, here, what="preview", **fields)
    assert shown.status_code == 200
    assert "<b>Look</b>" in shown.content.decode()
    assert versions(people) == before
    seen = shown.context["shown"]["seen"]
    # What was changed after it was shown is shown again, and not saved.
    late = post(client, here, what="save", seen=seen, **{**fields, "text": text + "More."})
    assert "changed after it was shown" in late.content.decode()
    assert versions(people) == before
    saved = post(client, here, what="save", seen=seen, **fields)
    stored = HarnessVersion.objects.get(project=people.project, label="better words")
    assert saved["Location"] == url("harness", stored.pk)
    assert load_harness(stored).instructions == BETTER
    assert load_harness(shelf.seed) == SEED


def test_a_mistake_keeps_what_was_typed(
    people: People, shelf: Shelf, url: Url, client: Client
) -> None:
    client.force_login(people.editor)
    answer = post(
        client, url("harness_edit"), what="preview", file="tools.json", text='[{"nam": "x"}]'
    )
    page = answer.content.decode()
    assert answer.status_code == 422
    assert "tools.json: accepts a list of objects with name and description" in page
    assert "[{&quot;nam&quot;: &quot;x&quot;}]" in page


def test_a_skill_is_added_and_removed(
    people: People, shelf: Shelf, url: Url, client: Client
) -> None:
    client.force_login(people.editor)
    here = url("harness_edit", shelf.seed.pk)
    page = client.get(here, {"file": "skills/new-skill/SKILL.md"}).content.decode()
    assert "new file" in page
    path = "skills/ask-less/SKILL.md"
    text = "---\nname: ask-less\ndescription: Asks less.\n---\nAsk less.\n"
    shown = post(client, here, what="preview", file=path, text=text)
    seen = shown.context["shown"]["seen"]
    post(client, here, what="save", seen=seen, file=path, text=text, label="with a skill")
    stored = HarnessVersion.objects.get(project=people.project, label="with a skill")
    here = url("harness_edit", stored.pk)
    shown = post(client, here, what="remove", file=path, text=text)
    assert "The file goes away" in shown.content.decode()
    seen = shown.context["shown"]["seen"]
    done = post(client, here, what="save", seen=seen, removal="1", file=path, text=text)
    assert done["Location"] == url("harness", shelf.seed.pk)


def test_a_label_is_changed_and_the_harness_is_not(
    people: People, shelf: Shelf, url: Url, client: Client
) -> None:
    client.force_login(people.editor)
    post(client, url("harness_label"), label="  renamed ")
    shelf.full.refresh_from_db()
    assert shelf.full.label == "renamed"
    assert load_harness(shelf.full) == FULL


# --- releases -------------------------------------------------------------------------------------


def test_a_release_is_rolled_back_in_one_click(
    people: People, shelf: Shelf, url: Url, client: Client
) -> None:
    client.force_login(people.editor)
    page = client.get(url("releases")).content.decode()
    assert f"Roll back to {shelf.seed.short}" in page
    done = client.post(url("release_roll_back"), follow=True).content.decode()
    assert f"{shelf.seed.short} counts again" in done
    assert "rolled back" in done
    again = client.post(url("release_roll_back"), follow=True).content.decode()
    assert "is not what counts" in again
    current = releases.current(shelf.version.environment)
    assert current is not None and current.harness == shelf.seed


def test_a_person_releases_a_harness_on_the_evidence_that_there_is(
    people: People, shelf: Shelf, url: Url, client: Client
) -> None:
    client.force_login(people.editor)
    environment = shelf.version.environment
    asked = {"environment": environment.slug, "note": "Why not."}
    client.post(url("harness_release", shelf.tried.pk), asked)
    made = releases.current(environment)
    assert made is not None
    assert (made.harness, made.certificate, made.note) == (shelf.tried, None, "Why not.")
    client.post(url("harness_release", shelf.full.pk), asked)
    made = releases.current(environment)
    assert made is not None and made.certificate is not None
    assert (made.harness, made.search) == (shelf.full, shelf.search)
    assert client.post(url("harness_release"), {"environment": "none"}).status_code == 404
