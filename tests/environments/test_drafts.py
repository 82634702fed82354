"""Drafts: what one person does, what two do at once, and what publishing makes of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.db import connection
from django.http import Http404

from orchestrator.environments.authoring import drafts, publish, queries, tasks
from orchestrator.environments.authoring.content import content_of
from orchestrator.environments.authoring.errors import (
    DraftConflictError,
    DraftRefusedError,
    FieldsRefusedError,
)
from orchestrator.environments.authoring.undo import undo_last
from orchestrator.environments.models import Environment, EnvironmentDraft
from tests.base import People, make_people
from tests.environments.drafting import keys_of, make_draft, make_task, seen
from tests.web.build import make_run

REFERENCE = [{"role": "assistant", "content": "wc -l q1.txt"}]


def settings_of(draft: EnvironmentDraft, **overrides: Any) -> dict[str, Any]:
    return {name: getattr(draft, name) for name in drafts.FIELDS} | overrides


def refreshed(draft: EnvironmentDraft) -> EnvironmentDraft:
    return EnvironmentDraft.objects.get(pk=draft.pk)


def test_from_a_name_to_a_version_that_carries_everything(people: People) -> None:
    draft = make_draft(people, make_task("q1", difficulty=0.5, seeds=[7]), make_task("q2"))
    drafts.save_settings(
        actor=people.editor,
        draft=draft,
        seen=drafts.settings_digest(draft),
        values=settings_of(
            draft,
            description="Answer in one line.",
            settings={"max_steps": 3},
            resources={"memory_mb": 256},
        ),
    )
    draft = refreshed(draft)
    published = publish.publish(
        actor=people.editor, draft=draft, revision=draft.revision, note="first"
    )
    version = published.version
    assert published.is_new
    assert (version.number, version.note, version.created_by) == (1, "first", people.editor)
    assert version.description == "Answer in one line."
    assert (version.settings, version.resources) == ({"max_steps": 3}, {"memory_mb": 256})
    stored = list(version.tasks.all())
    assert [content_of(task) for task in stored] == [
        make_task("q1", difficulty=0.5, seeds=[7], limits={}),
        make_task("q2", limits={}, seeds=[]),
    ]
    assert queries.draft_of(version.environment) is None


def test_a_draft_from_a_version_publishes_the_same_version_again(people: People) -> None:
    draft = make_draft(people, make_task("q1", reference=REFERENCE))
    first = publish.publish(actor=people.editor, draft=draft, revision=draft.revision).version
    again = drafts.start_draft(actor=people.editor, environment=first.environment, version=first)
    assert again.base == first
    same = publish.publish(actor=people.editor, draft=again, revision=again.revision)
    assert (same.version, same.is_new) == (first, False)


@pytest.mark.parametrize("who", ["member", "stranger"])
def test_only_editors_write(people: People, who: str) -> None:
    draft = make_draft(people, make_task("q1"))
    actor = getattr(people, who)
    refusal = {"member": PermissionDenied, "stranger": Http404}[who]
    revision = draft.revision
    for attempt in (
        lambda: drafts.create_environment(
            actor=actor, project=people.project, name="x", kind="terminal"
        ),
        lambda: drafts.start_draft(actor=actor, environment=draft.environment),
        lambda: drafts.save_settings(
            actor=actor,
            draft=draft,
            seen=drafts.settings_digest(draft),
            values=settings_of(draft),
        ),
        lambda: drafts.discard_draft(actor=actor, draft=draft),
        lambda: drafts.delete_environment(actor=actor, environment=draft.environment),
        lambda: tasks.save_task(actor=actor, draft=draft, task=make_task("q2")),
        lambda: tasks.delete_tasks(actor=actor, draft=draft, keys=["q1"]),
        lambda: tasks.move_tasks(actor=actor, draft=draft, keys=["q1"], split="test"),
        lambda: tasks.duplicate_tasks(actor=actor, draft=draft, keys=["q1"]),
        lambda: undo_last(actor=actor, draft=draft, revision=revision),
        lambda: publish.publish(actor=actor, draft=draft, revision=revision),
    ):
        with pytest.raises(refusal):
            attempt()
    assert refreshed(draft).revision == revision
    assert keys_of(draft) == ["q1"]


def test_a_name_that_is_taken_or_cannot_be(people: People) -> None:
    make_draft(people, name="Small files")
    for name, reason in (("small  FILES", "taken"), ("  ", "1 to 120"), ("x" * 121, "1 to 120")):
        with pytest.raises(FieldsRefusedError, match=reason):
            make_draft(people, name=name)


def test_of_two_who_change_one_task_the_second_is_told(people: People) -> None:
    draft = make_draft(people, make_task("q1"), make_task("q2"))
    shown = seen(draft, "q1")
    tasks.save_task(
        actor=people.editor, draft=draft, task=make_task("q1", prompt="first"), key="q1", seen=shown
    )
    with pytest.raises(DraftConflictError, match="changed q1"):
        tasks.save_task(
            actor=people.owner,
            draft=draft,
            task=make_task("q1", prompt="second"),
            key="q1",
            seen=shown,
        )
    assert draft.tasks.get(key="q1").prompt == "first"
    tasks.delete_tasks(actor=people.editor, draft=draft, keys=["q1"])
    with pytest.raises(DraftConflictError, match="deleted q1"):
        tasks.save_task(actor=people.owner, draft=draft, task=make_task("q1"), key="q1", seen=shown)


def test_people_who_change_different_tasks_do_not_disturb_each_other(people: People) -> None:
    draft = make_draft(people, make_task("q1"), make_task("q2"))
    both = {key: seen(draft, key) for key in ("q1", "q2")}
    for actor, key in ((people.editor, "q1"), (people.owner, "q2")):
        tasks.save_task(
            actor=actor, draft=draft, task=make_task(key, prompt="new"), key=key, seen=both[key]
        )
    assert set(draft.tasks.values_list("prompt", flat=True)) == {"new"}


def test_of_two_who_change_the_settings_the_second_is_told(people: People) -> None:
    draft = make_draft(people)
    shown = drafts.settings_digest(draft)
    drafts.save_settings(
        actor=people.editor, draft=draft, seen=shown, values=settings_of(draft, description="one")
    )
    with pytest.raises(DraftConflictError):
        drafts.save_settings(
            actor=people.owner,
            draft=draft,
            seen=shown,
            values=settings_of(draft, description="two"),
        )
    assert refreshed(draft).description == "one"


def test_settings_that_can_never_be_right_are_refused_by_name(people: People) -> None:
    draft = make_draft(people)
    with pytest.raises(FieldsRefusedError) as caught:
        drafts.save_settings(
            actor=people.editor,
            draft=draft,
            seen=drafts.settings_digest(draft),
            values=settings_of(
                draft, settings={"max_steps": 0}, resources={"memory_mb": 1}, description=""
            ),
        )
    assert set(caught.value.errors) == {"settings", "resources"}


def test_publishing_what_somebody_changed_meanwhile_is_refused(people: People) -> None:
    draft = make_draft(people, make_task("q1"))
    looked_at = draft.revision
    tasks.save_task(actor=people.owner, draft=draft, task=make_task("q2"))
    with pytest.raises(DraftConflictError):
        publish.publish(actor=people.editor, draft=draft, revision=looked_at)
    assert keys_of(draft) == ["q1", "q2"]


def test_what_keeps_a_draft_from_being_published_is_said(people: People) -> None:
    draft = make_draft(people)
    with pytest.raises(DraftRefusedError, match="no task yet"):
        publish.publish(actor=people.editor, draft=draft, revision=draft.revision)
    tasks.save_task(actor=people.editor, draft=draft, task=make_task("q1"))
    draft.tasks.update(spec={"files": "none", "answer": "2"})
    draft = refreshed(draft)
    with pytest.raises(DraftRefusedError, match="q1: "):
        publish.publish(actor=people.editor, draft=draft, revision=draft.revision)
    warnings = [item.text for item in publish.problems_of(draft) if item.is_warning]
    assert warnings == ["No task is in select or test: a climb needs train, select and test."]


def test_a_published_draft_is_gone_for_whoever_still_has_it_open(people: People) -> None:
    draft = make_draft(people, make_task("q1"))
    publish.publish(actor=people.editor, draft=draft, revision=draft.revision)
    with pytest.raises(DraftRefusedError, match="published or discarded"):
        tasks.save_task(actor=people.owner, draft=draft, task=make_task("q2"))


def test_a_task_that_does_not_fit_its_kind_names_the_field(people: People) -> None:
    draft = make_draft(people, make_task("q1"))
    with pytest.raises(FieldsRefusedError) as caught:
        tasks.save_task(actor=people.editor, draft=draft, task=make_task("q1"))
    assert caught.value.errors == {"key": "q1 is taken by another task"}
    with pytest.raises(FieldsRefusedError) as caught:
        tasks.save_task(
            actor=people.editor,
            draft=draft,
            task=make_task("q2", split="test", reference=REFERENCE),
        )
    assert caught.value.errors == {"reference": "is for train tasks only"}


def test_each_change_is_undone_once(people: People) -> None:
    draft = make_draft(people, make_task("q1", reference=REFERENCE), make_task("q2"))
    before = {row.key: content_of(row) for row in draft.tasks.all()}
    changes: list[tuple[str, Any]] = [
        ("delete of q1", lambda: tasks.delete_tasks(actor=people.editor, draft=draft, keys=["q1"])),
        (
            "delete of 2 tasks",
            lambda: tasks.delete_tasks(actor=people.editor, draft=draft, keys=["q1", "q2"]),
        ),
        (
            "move to test of q1",
            lambda: tasks.move_tasks(actor=people.editor, draft=draft, keys=["q1"], split="test"),
        ),
        (
            "copy of q2",
            lambda: tasks.duplicate_tasks(actor=people.editor, draft=draft, keys=["q2"]),
        ),
        (
            "change of q1",
            lambda: tasks.save_task(
                actor=people.editor,
                draft=draft,
                task=make_task("renamed"),
                key="q1",
                seen=seen(draft, "q1"),
            ),
        ),
        (
            "adding of q3",
            lambda: tasks.save_task(actor=people.editor, draft=draft, task=make_task("q3")),
        ),
    ]
    for label, change in changes:
        change()
        after = {row.key: content_of(row) for row in draft.tasks.all()}
        assert after != before, label
        revision = refreshed(draft).revision
        assert undo_last(actor=people.editor, draft=draft, revision=revision) == label
        assert {row.key: content_of(row) for row in draft.tasks.all()} == before, label
        with pytest.raises(DraftRefusedError, match="no change to undo"):
            undo_last(actor=people.editor, draft=draft, revision=refreshed(draft).revision)


def test_an_undo_never_takes_back_somebody_elses_change(people: People) -> None:
    draft = make_draft(people, make_task("q1"), make_task("q2"))
    tasks.delete_tasks(actor=people.editor, draft=draft, keys=["q1"])
    mine = refreshed(draft).revision
    tasks.delete_tasks(actor=people.owner, draft=draft, keys=["q2"])
    with pytest.raises(DraftConflictError):
        undo_last(actor=people.editor, draft=draft, revision=mine)
    assert keys_of(draft) == []


def test_a_move_out_of_train_drops_the_reference_and_says_so(people: People) -> None:
    draft = make_draft(people, make_task("q1", reference=REFERENCE), make_task("q2"))
    moved = tasks.move_tasks(actor=people.editor, draft=draft, keys=["q1", "q2"], split="select")
    assert moved == tasks.Moved(n_tasks=2, n_references=1)
    assert set(draft.tasks.values_list("split", "reference")) == {("select", None)}


def test_copies_get_keys_of_their_own(people: People) -> None:
    draft = make_draft(people, make_task("q1"))
    for _ in range(3):
        tasks.duplicate_tasks(actor=people.editor, draft=draft, keys=["q1"])
    assert keys_of(draft) == ["q1", "q1-copy", "q1-copy-2", "q1-copy-3"]
    assert draft.tasks.get(key="q1-copy-3").reset == {"task": "q1-copy-3"}
    assert len(tasks.free_key("x" * 64, set())) == 64


def test_splits_are_drawn_by_a_seed(people: People) -> None:
    draft = make_draft(people, *(make_task(f"q{n:02d}") for n in range(20)))

    def draw(seed: int) -> dict[str, str]:
        tasks.assign_splits(
            actor=people.editor,
            draft=draft,
            revision=refreshed(draft).revision,
            seed=seed,
            select=5,
            test=4,
        )
        return dict(draft.tasks.values_list("key", "split"))

    first = draw(7)
    assert queries.draft_counts(draft) == {"train": 11, "select": 5, "test": 4}
    assert draw(8) != first
    assert draw(7) == first
    with pytest.raises(FieldsRefusedError, match="at most 20"):
        tasks.assign_splits(
            actor=people.editor,
            draft=draft,
            revision=refreshed(draft).revision,
            seed=1,
            select=15,
            test=6,
        )


def test_an_environment_that_results_name_is_not_deleted(people: People) -> None:
    draft = make_draft(people, make_task("q1", split="test"))
    version = publish.publish(actor=people.editor, draft=draft, revision=draft.revision).version
    make_run(people.project, environment_version=version)
    assert queries.is_used(version.environment)
    with pytest.raises(DraftRefusedError, match="runs name its versions"):
        drafts.delete_environment(actor=people.editor, environment=version.environment)
    unused = make_draft(people, make_task("q1"), name="Unused").environment
    drafts.delete_environment(actor=people.editor, environment=unused)
    assert not Environment.objects.filter(pk=unused.pk).exists()


def test_a_task_that_a_version_seals_stays_closed_in_the_draft(people: People) -> None:
    draft = make_draft(people, make_task("a", split="test"), make_task("b"))
    assert not queries.is_sealed(draft, draft.tasks.get(key="a"))
    version = publish.publish(actor=people.editor, draft=draft, revision=draft.revision).version
    again = drafts.start_draft(
        actor=people.editor, environment=version.environment, version=version
    )
    assert queries.is_sealed(again, again.tasks.get(key="a"))
    assert not queries.is_sealed(again, again.tasks.get(key="b"))


@pytest.mark.django_db(transaction=True)
def test_of_many_at_the_very_same_moment_exactly_one_wins() -> None:
    people = make_people()
    draft = make_draft(people, make_task("q1"))
    shown = seen(draft, "q1")
    together = threading.Barrier(4)

    def write(n: int) -> str:
        try:
            together.wait(timeout=20)
            tasks.save_task(
                actor=people.editor,
                draft=draft,
                task=make_task("q1", prompt=f"by {n}"),
                key="q1",
                seen=shown,
            )
        except DraftConflictError:
            return ""
        finally:
            connection.close()
        return f"by {n}"

    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(write, range(4)))
    winners = [text for text in outcomes if text]
    assert len(winners) == 1
    assert draft.tasks.get().prompt == winners[0]
