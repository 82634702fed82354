"""Drafts: nothing that somebody wrote is lost, whoever else writes."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import Http404

from orchestrator.grading.drafts import create_rubric, discard_draft, save_draft, start_draft
from orchestrator.grading.errors import DraftGone, DraftRefused, Stale
from orchestrator.grading.models import RubricDraft
from orchestrator.grading.publish import publish
from rubrics.errors import RubricInvalid
from rubrics.models import Rubric, RubricVersion
from tests.base import People, make_people

EXACT: dict[str, Any] = {"id": "a", "kind": "exact"}


def spec(*criteria: dict[str, Any]) -> dict[str, Any]:
    return {"criteria": list(criteria)}


@pytest.fixture
def draft(people: People) -> RubricDraft:
    return create_rubric(actor=people.owner, project=people.project, name="Answers")


def test_a_rubric_begins_empty_or_as_a_copy_of_a_template(people: People) -> None:
    empty = create_rubric(actor=people.editor, project=people.project, name="  One  rubric ")
    assert (empty.rubric.name, empty.spec) == ("One rubric", {"criteria": []})
    copy = create_rubric(
        actor=people.editor, project=people.project, name="Two", template_key="terminal"
    )
    assert [c["id"] for c in copy.spec["criteria"]] == ["solved", "few_steps", "deletes"]


@pytest.mark.parametrize(("name", "key"), [("", ""), ("x" * 121, ""), ("Answers", ""), ("B", "?")])
def test_names_and_templates_that_cannot_be_are_refused(
    people: People, draft: RubricDraft, name: str, key: str
) -> None:
    with pytest.raises(DraftRefused):
        create_rubric(actor=people.owner, project=people.project, name=name, template_key=key)
    assert Rubric.objects.count() == 1


def test_what_is_unfinished_is_kept_as_it_is(people: People, draft: RubricDraft) -> None:
    unfinished = spec({"id": "a", "kind": "", "params": {"pattern": "("}}, {"id": "b"})
    saved = save_draft(actor=people.owner, draft=draft, spec=unfinished, revision=0)
    draft.refresh_from_db()
    assert (draft.spec, draft.revision) == (unfinished, 1)
    assert {note.criterion for note in saved.reading.problems} == {"a", "b"}


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {"criteria": {}},
        {"criteria": ["a"]},
        {"criteria": [{"kind": "exact"}]},
        {"criteria": [EXACT, EXACT]},
        {"criteria": [], "x": float("nan")},
        {"criteria": [], "x": "x" * 600_000},
        {"criteria": [{"id": "a", "name": "\x00"}]},
        {"criteria": [{"id": "a", "name": "\\\\\x00"}]},
        {"criteria": [{"id": "a", "\ud800": 1}]},
        {"criteria": [{"id": str(i)} for i in range(201)]},
    ],
)
def test_what_is_no_rubric_at_all_is_refused(
    people: People, draft: RubricDraft, wrong: Any
) -> None:
    with pytest.raises(DraftRefused):
        save_draft(actor=people.owner, draft=draft, spec=wrong, revision=0)
    draft.refresh_from_db()
    assert draft.revision == 0


def test_a_text_that_only_looks_like_an_escape_is_kept(people: People, draft: RubricDraft) -> None:
    pattern = spec({"id": "a", "kind": "regex", "params": {"pattern": "\\u0000é😀"}})
    saved = save_draft(actor=people.owner, draft=draft, spec=pattern, revision=0)
    assert saved.draft.spec == pattern


def test_the_second_of_two_writers_is_told_what_is_stored(
    people: People, draft: RubricDraft
) -> None:
    save_draft(actor=people.editor, draft=draft, spec=spec(EXACT), revision=0)
    with pytest.raises(Stale) as told:
        save_draft(actor=people.owner, draft=draft, spec=spec(), revision=0)
    assert told.value.spec == spec(EXACT)
    assert (told.value.revision, told.value.by) == (1, people.editor.username)
    assert told.value.at is not None
    draft.refresh_from_db()
    assert draft.spec == spec(EXACT)


def test_a_save_that_is_repeated_because_its_answer_was_lost_counts(
    people: People, draft: RubricDraft
) -> None:
    for _ in range(2):
        saved = save_draft(actor=people.owner, draft=draft, spec=spec(EXACT), revision=0)
        assert saved.draft.revision == 1
    with pytest.raises(Stale):  # the same from somebody else is another's work
        save_draft(actor=people.editor, draft=draft, spec=spec(EXACT), revision=0)


@pytest.mark.django_db(transaction=True)
def test_of_many_at_once_one_is_stored_and_all_others_are_told() -> None:
    people = make_people()
    draft = create_rubric(actor=people.owner, project=people.project, name="Race")
    barrier = threading.Barrier(6)
    outcomes: list[tuple[str, str]] = []

    def write(name: str) -> None:
        try:
            barrier.wait(10)
            save_draft(
                actor=people.owner if name < "d" else people.editor,
                draft=draft,
                spec=spec({"id": name, "kind": "exact"}),
                revision=0,
            )
            outcomes.append((name, "stored"))
        except Stale as stale:
            outcomes.append((name, stale.spec["criteria"][0]["id"]))
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcdef"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    stored = [name for name, what in outcomes if what == "stored"]
    assert len(outcomes) == 6 and len(stored) == 1
    assert {what for name, what in outcomes if name != stored[0]} == {stored[0]}
    draft.refresh_from_db()
    assert draft.revision == 1 and draft.spec["criteria"][0]["id"] == stored[0]


def test_publishing_freezes_and_ends_the_draft(people: People, draft: RubricDraft) -> None:
    save_draft(actor=people.owner, draft=draft, spec=spec(EXACT), revision=0)
    version = publish(draft=draft, actor=people.owner, revision=1)
    assert (version.number, [c["id"] for c in version.spec["criteria"]]) == (1, ["a"])
    assert not RubricDraft.objects.exists()
    with pytest.raises(DraftGone):
        save_draft(actor=people.owner, draft=draft, spec=spec(), revision=1)


def test_publishing_asks_for_all_and_for_what_was_seen(people: People, draft: RubricDraft) -> None:
    with pytest.raises(RubricInvalid):
        publish(draft=draft, actor=people.owner, revision=0)
    save_draft(actor=people.editor, draft=draft, spec=spec(EXACT), revision=0)
    with pytest.raises(Stale):
        publish(draft=draft, actor=people.owner, revision=0)
    assert not RubricVersion.objects.exists()
    assert RubricDraft.objects.filter(pk=draft.pk).exists()


def test_the_next_draft_starts_from_the_newest_version_or_another(
    people: People, draft: RubricDraft
) -> None:
    rubric = draft.rubric
    for id in ("a", "b"):
        draft = start_draft(actor=people.owner, rubric=rubric)
        save_draft(
            actor=people.owner,
            draft=draft,
            spec=spec({"id": id, "kind": "exact"}),
            revision=draft.revision,
        )
        publish(draft=draft, actor=people.owner, revision=draft.revision + 1)
    again = start_draft(actor=people.owner, rubric=rubric)
    assert again.spec["criteria"][0]["id"] == "b"
    assert start_draft(actor=people.editor, rubric=rubric).pk == again.pk
    assert not discard_draft(actor=people.owner, draft=again)
    first = rubric.versions.get(number=1)
    older = start_draft(actor=people.owner, rubric=rubric, version=first)
    assert (older.spec["criteria"][0]["id"], older.base) == ("a", first)


def test_a_rubric_that_was_never_published_goes_with_its_draft(
    people: People, draft: RubricDraft
) -> None:
    assert discard_draft(actor=people.owner, draft=draft)
    assert not Rubric.objects.exists()


def test_only_editors_write(people: People, draft: RubricDraft) -> None:
    for actor, refusal in ((people.member, PermissionDenied), (people.stranger, Http404)):
        with pytest.raises(refusal):
            create_rubric(actor=actor, project=people.project, name="Mine")
        with pytest.raises(refusal):
            save_draft(actor=actor, draft=draft, spec=spec(), revision=0)
        with pytest.raises(refusal):
            publish(draft=draft, actor=actor, revision=0)
        with pytest.raises(refusal):
            discard_draft(actor=actor, draft=draft)
        with pytest.raises(refusal):
            start_draft(actor=actor, rubric=draft.rubric)
