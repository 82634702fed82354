"""What differs between two versions, and what of it may be told."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.environments.authoring.diff import Side, difference, pieces
from orchestrator.environments.services import NewTask
from tests.environments.drafting import make_task


def side(*tasks: NewTask, **fields: object) -> Side:
    return Side(fields, {task.key: task for task in tasks})


def test_added_removed_changed_and_same_tasks_are_told_apart() -> None:
    found = difference(
        side(make_task("same"), make_task("gone"), make_task("other")),
        side(make_task("same"), make_task("new"), make_task("other", prompt="other.txt: x")),
    )
    assert [task.key for task in found.added] == ["new"]
    assert [task.key for task in found.removed] == ["gone"]
    assert [(task.key, [f.name for f in task.fields]) for task in found.changed] == [
        ("other", ["prompt"])
    ]
    assert found.n_same == 1
    assert not found.is_empty
    assert difference(side(make_task("a"), source={}), side(make_task("a"), source={})).is_empty


def test_fields_of_the_version_are_compared_as_text() -> None:
    found = difference(
        side(source={"base_url": "http://a"}, description="old words"),
        side(source={"base_url": "http://a"}, description="new words"),
    )
    assert [change.name for change in found.fields] == ["description"]
    assert found.fields[0].pieces == [("gone", "old"), ("new", "new"), ("same", " words")]


def test_what_solves_a_sealed_task_is_never_told() -> None:
    secret = {"files": {}, "answer": "4711", "match": "exact"}
    for split in ("select", "test"):
        before, after = (
            make_task("q", split=split, prompt=prompt, spec=spec)
            for prompt, spec in (("old", {}), ("new", secret))
        )
        found = difference(side(before), side(after), show_sealed=True)
        assert "4711" not in repr(found)
        changes = {change.name: change for change in found.changed[0].fields}
        assert changes["answer"].is_sealed
        assert not changes["prompt"].is_sealed
    assert found.n_sealed == 1


def test_a_task_that_moves_into_or_out_of_a_sealed_split_stays_closed() -> None:
    secret = {"answer": "4711"}
    for one, two in (("train", "test"), ("test", "train")):
        found = difference(
            side(make_task("q", split=one, spec={})),
            side(make_task("q", split=two, spec=secret)),
            show_sealed=True,
        )
        assert "4711" not in repr(found)
        assert [change.name for change in found.changed[0].fields] == ["split", "answer", *()]


def test_of_train_tasks_editors_see_what_changed_and_viewers_only_that() -> None:
    before, after = (make_task("q", spec={"answer": answer}) for answer in ("12", "13"))
    for is_editor in (True, False):
        change = difference(side(before), side(after), show_sealed=is_editor).changed[0].fields[0]
        assert (change.name, change.is_sealed) == ("answer", not is_editor)
        assert (("new", "13") in change.pieces) is is_editor


@given(st.text(max_size=200), st.text(max_size=200))
@settings(deadline=None)
def test_pieces_put_together_are_the_two_texts(before: str, after: str) -> None:
    found = pieces(before, after)
    assert "".join(text for kind, text in found if kind != "new") == before
    assert "".join(text for kind, text in found if kind != "gone") == after


def test_long_texts_are_compared_quickly() -> None:
    before = "\n".join(f"word {n} of many" for n in range(20_000))
    after = before.replace("word 777 ", "another 777 ")
    found = pieces(before, after)
    assert [kind for kind, _ in found] == ["gone", "new"]


def test_a_difficulty_of_nothing_is_not_one_of_zero() -> None:
    found = difference(side(make_task("q")), side(make_task("q", difficulty=0.0)))
    assert [(c.name, c.before, c.after) for c in found.changed[0].fields] == [
        ("difficulty", "", "0.0")
    ]


def test_the_source_which_may_hold_the_grader_is_shown_to_editors_alone() -> None:
    before, after = (side(source={"grade": f"def grade(): return {n}"}) for n in (12, 4711))
    assert "4711" in repr(difference(before, after, show_sealed=True))
    for_viewer = difference(before, after)
    assert [(c.name, c.is_sealed) for c in for_viewer.fields] == [("source", True)]
    assert "4711" not in repr(for_viewer)
    assert not for_viewer.is_empty
