"""Environments written through the pages: forms, tables, uploads, publishing, comparison."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.environments.authoring import publish as publishing
from orchestrator.environments.authoring import queries, tasks
from orchestrator.environments.authoring.content import content_of, digest_of
from orchestrator.environments.authoring.drafts import start_draft
from orchestrator.environments.models import (
    Environment,
    EnvironmentDraft,
    EnvironmentVersion,
    SourceRegistration,
)
from tests.base import People
from tests.environments.drafting import keys_of, make_draft, make_task


@pytest.fixture
def client(people: People) -> Client:
    client = Client()
    client.force_login(people.editor)
    return client


def address(draft: EnvironmentDraft, name: str, *more: object) -> str:
    environment = draft.environment
    return reverse(f"web:{name}", args=[environment.project_id, environment.slug, *more])


def text_of(response: Any) -> str:
    return str(response.content.decode())


def publish(people: People, draft: EnvironmentDraft) -> EnvironmentVersion:
    draft.refresh_from_db()
    return publishing.publish(actor=people.editor, draft=draft, revision=draft.revision).version


def again(people: People, version: EnvironmentVersion) -> EnvironmentDraft:
    return start_draft(actor=people.editor, environment=version.environment, version=version)


TERMINAL = {
    "c-key": "q1",
    "c-split": "train",
    "c-family": "count",
    "c-difficulty": "0.5",
    "c-prompt": "a.txt: number of lines",
    "f-files-path": ["a.txt", ""],
    "f-files-text": ["one\r\ntwo\r\n", ""],
    "f-answer": "2",
    "f-match": "number",
    "f-max_steps": "4",
    "l-max_steps": "3",
    "c-seeds": "7, 8",
    "c-reference": '[{"role": "assistant", "content": "wc -l a.txt"}]',
}


# --- from nothing to a version ---------------------------------------------------------------


def test_an_environment_from_nothing_to_its_first_version(people: People, client: Client) -> None:
    new = reverse("web:environment_new", args=[people.project.pk])
    assert "Questions and answers" in text_of(client.get(new))
    create = reverse("web:environment_create", args=[people.project.pk, "terminal"])
    made = client.post(create, {"a-name": "Small files", "a-description": "For people."})
    draft = EnvironmentDraft.objects.get()
    assert made["Location"] == address(draft, "draft")
    assert "No task yet" in text_of(client.get(made["Location"]))
    stored = client.post(address(draft, "draft_task_new"), TERMINAL)
    assert stored["Location"] == address(draft, "draft_task", "q1")
    draft.refresh_from_db()
    published = client.post(
        address(draft, "draft_publish"), {"revision": draft.revision, "note": "first"}, follow=True
    )
    assert "Version 1 is published and frozen." in text_of(published)
    task = EnvironmentVersion.objects.get().tasks.get()
    assert (task.prompt, task.split, task.family, task.difficulty) == (
        "a.txt: number of lines",
        "train",
        "count",
        0.5,
    )
    assert task.spec["files"] == {"a.txt": "one\ntwo\n"}
    assert (task.spec["answer"], task.spec["match"]) == ("2", "number")
    assert (task.limits, task.seeds, task.reset) == ({"max_steps": 3}, [7, 8], {"task": "q1"})
    assert task.reference == [{"role": "assistant", "content": "wc -l a.txt"}]
    assert "first" in text_of(client.get(address(draft, "environment")))


def test_a_name_that_is_taken_is_said_beside_the_name(people: People, client: Client) -> None:
    make_draft(people, name="Small files")
    create = reverse("web:environment_create", args=[people.project.pk, "qa"])
    response = client.post(create, {"a-name": "Small files", "a-description": "kept words"})
    assert response.status_code == 422
    assert "is taken" in text_of(response)
    assert "kept words" in text_of(response)


def test_every_kind_has_a_form(people: People, client: Client) -> None:
    for kind in ("qa", "terminal", "sql", "tools", "url", "package", "docker", "aca"):
        create = reverse("web:environment_create", args=[people.project.pk, kind])
        assert client.get(create).status_code == 200
        response = client.post(create, {})
        assert response.status_code == 422
        assert "is missing" in text_of(response)
    assert (
        client.get(reverse("web:environment_create", args=[people.project.pk, "nope"])).status_code
        == 404
    )


def test_an_image_is_registered_and_its_way_is_shown(people: People, client: Client) -> None:
    create = reverse("web:environment_create", args=[people.project.pk, "docker"])
    response = client.post(
        create,
        {"a-name": "Boxed", "s-image": "example/echo:1", "s-port": "8000", "r-memory_mb": "256"},
        follow=True,
    )
    registration = SourceRegistration.objects.get()
    assert (registration.kind, registration.source["image"]) == ("docker", "example/echo:1")
    assert registration.resources == {"memory_mb": 256}
    assert "Boxed" in text_of(response)
    assert "waits for a worker" in text_of(response)
    listed = reverse("web:environments", args=[people.project.pk])
    assert "On their way" in text_of(client.get(listed))


def test_what_a_source_lacks_is_said_beside_its_field(people: People, client: Client) -> None:
    create = reverse("web:environment_create", args=[people.project.pk, "package"])
    response = client.post(create, {"a-name": "Mine", "s-path": "/nowhere/at/all"})
    assert response.status_code == 422
    assert 'value="/nowhere/at/all"' in text_of(response)
    assert not SourceRegistration.objects.exists()


# --- one task ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("c-key", "a key", "must be 1 to 64 letters"),
        ("c-prompt", " ", "is missing"),
        ("c-difficulty", "much", "must be a number"),
        ("f-files-path", ["a.txt", "a.txt"], "two files of the same name"),
        ("f-match", "fuzzy", "use one of"),
        ("f-max_steps", "2.5", "must be a whole number"),
        ("l-max_steps", "-", "must be a whole number"),
        ("c-seeds", "x", "must be a whole number"),
        ("c-reference", "{", "is not JSON"),
        ("c-split", "test", "is for train tasks only"),
    ],
)
def test_what_does_not_fit_is_said_and_what_was_typed_stays(
    people: People, client: Client, field: str, value: Any, reason: str
) -> None:
    draft = make_draft(people)
    response = client.post(address(draft, "draft_task_new"), {**TERMINAL, field: value})
    html = text_of(response)
    assert response.status_code == 422
    assert reason in html
    assert "one\ntwo" in html
    assert "a.txt: number of lines" in html or field == "c-prompt"
    assert not draft.tasks.exists()


def test_a_form_that_is_sent_unchanged_changes_no_task(people: People, client: Client) -> None:
    task = make_task("q1", limits={"max_steps": 3}, seeds=[1, 2], difficulty=2)
    draft = make_draft(people, task)
    before = digest_of(content_of(draft.tasks.get()))
    page = client.get(address(draft, "draft_task", "q1"))
    assert "q1.txt: number of lines" in text_of(page)
    sent: dict[str, Any] = {"seen": before}
    for control in (c for group in page.context["form"].groups.values() for c in group):
        if control.field.type == "files":
            sent[f"{control.name}-path"] = [path for path, _ in control.files]
            sent[f"{control.name}-text"] = [text for _, text in control.files]
        else:
            # A browser sends a line end as two characters.
            sent[control.name] = control.text.replace("\n", "\r\n")
    assert client.post(address(draft, "draft_task", "q1"), sent).status_code == 302
    assert digest_of(content_of(draft.tasks.get())) == before


def test_the_second_of_two_sees_both_texts_and_may_store_hers(
    people: People, client: Client
) -> None:
    draft = make_draft(people, make_task("q1"))
    seen = digest_of(content_of(draft.tasks.get()))
    tasks.save_task(
        actor=people.owner,
        draft=draft,
        task=make_task("q1", prompt="written by the owner"),
        key="q1",
        seen=seen,
    )
    mine = {**TERMINAL, "seen": seen}
    response = client.post(address(draft, "draft_task", "q1"), mine)
    html = text_of(response)
    assert response.status_code == 409
    assert "Somebody else has changed q1" in html
    assert "written by the owner" in html
    assert "a.txt: number of lines" in html
    assert draft.tasks.get().prompt == "written by the owner"
    now = digest_of(content_of(draft.tasks.get()))
    assert f'value="{now}"' in html
    client.post(address(draft, "draft_task", "q1"), {**mine, "seen": now})
    assert draft.tasks.get().prompt == "a.txt: number of lines"


def test_a_task_that_somebody_deleted_keeps_what_was_typed(people: People, client: Client) -> None:
    draft = make_draft(people, make_task("q1"))
    seen = digest_of(content_of(draft.tasks.get()))
    tasks.delete_tasks(actor=people.owner, draft=draft, keys=["q1"])
    response = client.post(address(draft, "draft_task", "q1"), {**TERMINAL, "seen": seen})
    assert response.status_code == 409
    assert "deleted q1" in text_of(response)
    assert "a.txt: number of lines" in text_of(response)
    gone = client.get(address(draft, "draft_task", "q1"), follow=True)
    assert "is not in the draft any more" in text_of(gone)


def test_a_sealed_answer_is_shown_only_when_it_is_opened_and_kept_when_not(
    people: People, client: Client
) -> None:
    spec = {"files": {"a.txt": "x\n"}, "answer": "4711", "match": "exact", "max_steps": 4}
    version = publish(people, make_draft(people, make_task("q1", split="test", spec=spec)))
    draft = again(people, version)
    page = text_of(client.get(address(draft, "draft_task", "q1")))
    assert "4711" not in page
    assert "Sealed" in page
    assert "4711" in text_of(client.get(address(draft, "draft_task", "q1") + "?open"))
    client.post(
        address(draft, "draft_task", "q1"),
        {
            "closed": "on",
            "seen": digest_of(content_of(draft.tasks.get())),
            "c-key": "q1",
            "c-split": "test",
            "c-prompt": "a.txt: first line",
        },
    )
    task = draft.tasks.get()
    assert (task.prompt, task.spec) == ("a.txt: first line", spec)
    stale = client.post(
        address(draft, "draft_task", "q1"),
        {"closed": "on", "seen": "x", "c-key": "q1", "c-split": "test", "c-prompt": "mine"},
    )
    assert stale.status_code == 409
    assert "a.txt: first line" in text_of(stale)
    assert "4711" not in text_of(stale)
    bad = client.post(address(draft, "draft_task", "q1"), {"closed": "on", "c-prompt": " "})
    assert bad.status_code == 422
    assert "4711" not in text_of(bad)


# --- many tasks --------------------------------------------------------------------------------


def test_the_table_pages_and_filters(people: People, client: Client) -> None:
    draft = make_draft(people)
    draft.tasks.bulk_create(
        draft.tasks.model(
            draft=draft,
            key=f"q{n:05d}",
            split="test" if n % 10 == 0 else "train",
            family=f"group_{n % 3}",
            prompt=f"prompt {n}",
        )
        for n in range(250)
    )
    page = client.get(address(draft, "draft"), {"page": "3"})
    assert "201–250 of 250" in text_of(page)
    assert "q00249" in text_of(page)
    found = client.get(address(draft, "draft"), {"split": "test", "group": "group_0"})
    assert found.context["found"].n_found == 9
    assert client.get(address(draft, "draft"), {"q": "prompt 24"}).context["found"].n_found == 11
    assert "No task matches" in text_of(client.get(address(draft, "draft"), {"q": "zzz"}))
    assert client.get(address(draft, "draft"), {"page": "99"}).context["found"].number == 3


def test_ticked_tasks_and_all_that_a_filter_finds_are_changed(
    people: People, client: Client
) -> None:
    draft = make_draft(people, *(make_task(f"q{n}") for n in range(4)))
    url = address(draft, "draft_tasks_change")
    client.post(url, {"key": ["q0", "q1"], "action": "test"})
    assert queries.draft_counts(draft) == {"train": 2, "select": 0, "test": 2}
    response = client.post(url, {"all": "on", "filter": "split=train", "action": "delete"})
    assert response["Location"] == address(draft, "draft") + "?split=train"
    assert keys_of(draft) == ["q0", "q1"]
    page = client.get(address(draft, "draft"))
    assert "Undo delete of 2 tasks" in text_of(page)
    draft.refresh_from_db()
    client.post(address(draft, "draft_undo"), {"revision": draft.revision})
    assert keys_of(draft) == ["q0", "q1", "q2", "q3"]
    nothing = client.post(url, {"action": "delete"}, follow=True)
    assert "No task is chosen" in text_of(nothing)
    odd = client.post(url, {"key": ["q0"], "action": "nowhere"}, follow=True)
    assert "is one of train, select, test" in text_of(odd)


def test_splits_are_drawn_by_shares_and_numbers(people: People, client: Client) -> None:
    draft = make_draft(people, *(make_task(f"q{n}") for n in range(10)))
    url = address(draft, "draft_split")
    client.post(url, {"select": "20 %", "test": "3", "seed": "5", "revision": draft.revision})
    assert queries.draft_counts(draft) == {"train": 5, "select": 2, "test": 3}
    for values, reason in (
        ({"select": "many"}, "a number of tasks, or a share"),
        ({"select": "11"}, "at most 10"),
        ({"seed": "x"}, "The seed is a whole number"),
        ({"revision": 0}, "have changed meanwhile"),
    ):
        draft.refresh_from_db()
        sent = {"select": "1", "test": "1", "seed": "1", "revision": draft.revision, **values}
        assert reason in text_of(client.post(url, sent, follow=True))


# --- settings ----------------------------------------------------------------------------------


def test_settings_are_stored_and_bad_ones_stay_in_the_form(people: People, client: Client) -> None:
    draft = make_draft(people)
    url = address(draft, "draft_settings")
    seen = client.get(url).context["seen"]
    sent = {
        "seen": seen,
        "d-description": "One line only.",
        "e-max_steps": "5",
        "r-memory_mb": "512",
        "n-mode": "allow-list",
        "n-allowed_hosts": "api.example.org\r\n*.example.com",
    }
    bad = client.post(url, {**sent, "e-max_steps": "five", "r-memory_mb": "1"})
    assert bad.status_code == 422
    assert 'value="five"' in text_of(bad)
    limits = client.post(url, {**sent, "r-memory_mb": "1"})
    assert limits.status_code == 422
    assert "memory_mb must be at least 32" in text_of(limits)
    assert client.post(url, sent).status_code == 302
    draft.refresh_from_db()
    assert draft.settings == {"max_steps": 5}
    assert draft.resources == {
        "memory_mb": 512,
        "network": {"mode": "allow-list", "allowed_hosts": ["api.example.org", "*.example.com"]},
    }
    second = client.post(url, {**sent, "d-description": "Something else."})
    assert second.status_code == 409
    assert "One line only." in text_of(second)
    assert "Something else." in text_of(second)


def test_json_numbers_in_forms_stay_numbers(people: People, client: Client) -> None:
    draft = make_draft(people)
    client.post(address(draft, "draft_task_new"), {**TERMINAL, "c-difficulty": "3"})
    assert json.dumps(draft.tasks.get().spec["max_steps"]) == "4"
    assert 'value="3"' in text_of(client.get(address(draft, "draft_task", "q1")))


def test_an_environment_is_renamed_and_keeps_its_address(people: People, client: Client) -> None:
    draft = make_draft(people)
    url = address(draft, "environment_describe")
    client.post(url, {"name": "  Larger   files ", "description": "For people."})
    environment = Environment.objects.get()
    assert (environment.name, environment.slug) == ("Larger files", "small-files")
    refused = client.post(url, {"name": " "}, follow=True)
    assert "name must have 1 to 120 characters" in text_of(refused)
    assert Environment.objects.get().description == "For people."
