"""The pages of rubrics: who may see and change what, and what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.grading.drafts import create_rubric, start_draft
from orchestrator.grading.models import RubricDraft, RubricSuggestion
from orchestrator.grading.publish import publish
from rubrics.models import Rubric, RubricVersion
from tests.base import People

SPEC: dict[str, Any] = {"criteria": [{"id": "a", "kind": "exact", "name": "A"}]}


@pytest.fixture
def draft(people: People) -> RubricDraft:
    draft = create_rubric(
        actor=people.owner, project=people.project, name="Answers", template_key="exact-answer"
    )
    publish(draft=draft, actor=people.owner, revision=0)
    return start_draft(actor=people.owner, rubric=draft.rubric)


def url(name: str, draft: RubricDraft) -> str:
    return reverse(f"web:{name}", args=[draft.rubric.project_id, draft.rubric_id])


def save(client: Client, draft: RubricDraft, spec: Any, revision: Any) -> Any:
    return client.post(
        url("rubric_save", draft),
        data=json.dumps({"spec": spec, "revision": revision}),
        content_type="application/json",
    )


READING = ("rubric", "rubric_versions", "rubric_json", "rubric_export")
EDITING = ("rubric_edit", "rubric_publish")
CHANGING = ("rubric_save", "rubric_draft_start", "rubric_draft_discard", "rubric_suggest")
PAGES = {*READING[1:], *EDITING, "rubric_new", "rubric_suggestion"}
WRITES = set(CHANGING)
"""Compared with all addresses in `test_access`."""


@pytest.mark.parametrize("name", [*READING, *EDITING])
def test_pages_are_for_members_and_editing_is_for_editors(
    people: People, draft: RubricDraft, client: Client, name: str
) -> None:
    for user, status in (
        (people.editor, 200),
        (people.member, 200 if name in READING else 403),
        (people.stranger, 404),
    ):
        client.force_login(user)
        assert client.get(url(name, draft)).status_code == status


@pytest.mark.parametrize("name", CHANGING)
def test_only_editors_change_anything(
    people: People, draft: RubricDraft, client: Client, name: str
) -> None:
    for user, status in ((people.member, 403), (people.stranger, 404)):
        client.force_login(user)
        assert client.post(url(name, draft)).status_code == status
    client.force_login(people.owner)
    assert client.get(url(name, draft)).status_code == 405
    draft.refresh_from_db()
    assert draft.revision == 0


def test_suggestions_are_for_editors(people: People, draft: RubricDraft, client: Client) -> None:
    asked = RubricSuggestion.objects.create(rubric=draft.rubric, n_traces=1)
    here = reverse("web:rubric_suggestion", args=[people.project.pk, draft.rubric_id, asked.pk])
    for user, status in ((people.editor, 200), (people.member, 403), (people.stranger, 404)):
        client.force_login(user)
        assert client.get(here).status_code == status
    assert client.post(here, {"action": "taken"}).status_code == 404


def test_a_viewer_does_not_see_the_draft(
    people: People, draft: RubricDraft, client: Client
) -> None:
    client.force_login(people.owner)
    secret = {"criteria": [{"id": "hush", "kind": "exact"}]}
    assert save(client, draft, secret, 0).status_code == 200
    client.force_login(people.member)
    for name in READING:
        assert "hush" not in client.get(url(name, draft)).content.decode()


def test_a_save_says_what_is_stored_and_what_is_missing(
    people: People, draft: RubricDraft, client: Client
) -> None:
    client.force_login(people.editor)
    answer = save(client, draft, {"criteria": [{"id": "a", "kind": "regex"}]}, 0).json()
    assert answer["revision"] == 1 and answer["saved_by"] == people.editor.username
    assert [(p["criterion"], p["field"]) for p in answer["problems"]] == [("a", "params.pattern")]
    assert answer["n_changes"] == 3


def test_the_second_writer_gets_the_difference(
    people: People, draft: RubricDraft, client: Client
) -> None:
    client.force_login(people.editor)
    save(client, draft, SPEC, 0)
    client.force_login(people.owner)
    renamed = {"criteria": [{"id": "a", "kind": "exact", "name": "B"}]}
    answer = save(client, draft, renamed, 0)
    assert answer.status_code == 409
    body = answer.json()
    assert (body["spec"], body["revision"], body["by"]) == (SPEC, 1, people.editor.username)
    (change,) = body["changes"]
    assert change["fields"] == [{"name": "name", "before": "A", "after": "B"}]


@pytest.mark.parametrize(
    ("spec", "revision"), [([], 0), (SPEC, "0"), (SPEC, None), (SPEC, True), (None, 0)]
)
def test_what_is_no_rubric_is_refused(
    people: People, draft: RubricDraft, client: Client, spec: Any, revision: Any
) -> None:
    client.force_login(people.owner)
    answer = save(client, draft, spec, revision)
    assert answer.status_code == 422 and answer.json()["error"]
    answer = client.post(url("rubric_save", draft), data="{", content_type="application/json")
    assert answer.status_code == 422


def test_a_save_after_publishing_says_that_the_draft_is_gone(
    people: People, draft: RubricDraft, client: Client
) -> None:
    publish(draft=draft, actor=people.owner, revision=0)
    client.force_login(people.owner)
    assert save(client, draft, SPEC, 0).status_code == 410
    assert "Start a draft" in client.get(url("rubric_edit", draft)).content.decode()


def test_a_new_rubric_starts_from_a_template(people: People, client: Client) -> None:
    client.force_login(people.editor)
    here = reverse("web:rubric_new", args=[people.project.pk])
    assert "A task in a shell" in client.get(here).content.decode()
    answer = client.post(here, {"name": "New", "template": "terminal"})
    rubric = Rubric.objects.get(name="New")
    assert answer["Location"] == reverse("web:rubric_edit", args=[people.project.pk, rubric.pk])
    again = client.post(here, {"name": "New"})
    assert again.status_code == 422
    assert "has a rubric New already" in again.content.decode()


def test_text_is_taken_as_the_draft_and_given_back(
    people: People, draft: RubricDraft, client: Client
) -> None:
    client.force_login(people.owner)
    text = json.dumps(SPEC)
    answer = client.post(url("rubric_json", draft), {"text": text, "revision": "0"})
    assert answer.status_code == 302
    given = client.get(url("rubric_export", draft))
    assert json.loads(given.content) == SPEC
    assert given["Content-Disposition"] == 'attachment; filename="answers-draft.json"'
    frozen = json.loads(client.get(url("rubric_export", draft) + "?version=1").content)
    assert [c["id"] for c in frozen["criteria"]] == ["answered", "right_answer"]


@pytest.mark.parametrize(
    ("text", "revision", "status", "said"),
    [
        ("{", "0", 422, "Line 1, column 2"),
        ("[]", "0", 422, "is a JSON object"),
        (json.dumps(SPEC), "7", 409, "nothing of it is stored"),
        ("[" * 100_000, "0", 422, "nested too deeply"),
    ],
)
def test_text_that_cannot_be_taken_comes_back_with_the_reason(
    people: People,
    draft: RubricDraft,
    client: Client,
    text: str,
    revision: str,
    status: int,
    said: str,
) -> None:
    client.force_login(people.owner)
    answer = client.post(url("rubric_json", draft), {"text": text, "revision": revision})
    assert answer.status_code == status
    assert said in answer.content.decode()
    draft.refresh_from_db()
    assert draft.revision == 0


def test_publishing_shows_what_changes_and_what_is_missing(
    people: People, draft: RubricDraft, client: Client
) -> None:
    client.force_login(people.owner)
    save(client, draft, {"criteria": [{"id": "b", "kind": "regex"}]}, 0)
    page = client.get(url("rubric_publish", draft)).content.decode()
    assert "It cannot be published yet" in page and "removed" in page
    assert client.post(url("rubric_publish", draft), {"revision": "1"}).status_code == 422
    save(client, draft, SPEC, 1)
    assert client.post(url("rubric_publish", draft), {"revision": "1"}).status_code == 409
    assert RubricVersion.objects.count() == 1
    answer = client.post(url("rubric_publish", draft), {"revision": "2"}, follow=True)
    assert "Version 2 is published and frozen." in answer.content.decode()
    assert client.get(url("rubric_publish", draft)).status_code == 302


def test_versions_are_compared(people: People, draft: RubricDraft, client: Client) -> None:
    client.force_login(people.owner)
    save(client, draft, SPEC, 0)
    publish(draft=draft, actor=people.owner, revision=1)
    page = client.get(url("rubric_versions", draft) + "?from=1&to=2").content.decode()
    assert "right_answer" in page and "removed" in page and "added" in page
    assert client.get(url("rubric_versions", draft) + "?from=x&to=9").status_code == 200


def test_a_discarded_draft_is_gone_and_versions_stay(
    people: People, draft: RubricDraft, client: Client
) -> None:
    client.force_login(people.owner)
    answer = client.post(url("rubric_draft_discard", draft), follow=True)
    assert "The draft is discarded" in answer.content.decode()
    assert RubricVersion.objects.filter(rubric=draft.rubric).count() == 1
    client.post(url("rubric_draft_start", draft), {"version": "1"})
    assert RubricDraft.objects.get().base is not None


def test_the_list_marks_drafts(people: People, draft: RubricDraft, client: Client) -> None:
    client.force_login(people.owner)
    page = client.get(reverse("web:rubrics", args=[people.project.pk])).content.decode()
    assert "draft</span>" in page and "New rubric" in page
    client.force_login(people.member)
    page = client.get(reverse("web:rubrics", args=[people.project.pk])).content.decode()
    assert "New rubric" not in page
