"""Rubrics are compared by the ids of their criteria."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.grading.diff import What, difference


def criterion(id: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "kind": "exact", **fields}


def rubric(*criteria: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"criteria": list(criteria), **fields}


def told(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    found = difference(before, after).criteria
    return [(item.id, item.what.value, [field.name for field in item.fields]) for item in found]


def test_a_renamed_criterion_is_changed_not_replaced() -> None:
    assert told(rubric(criterion("a", name="A")), rubric(criterion("a", name="Alpha"))) == [
        ("a", "changed", ["name"])
    ]


def test_each_parameter_is_told_by_itself() -> None:
    before = rubric(criterion("a", params={"expected": "x", "ignore_case": True}))
    after = rubric(criterion("a", params={"expected": "y", "ignore_case": True}))
    (change,) = difference(before, after).criteria
    assert [(f.name, f.before, f.after) for f in change.fields] == [("params.expected", "x", "y")]
    assert ("gone", "x") in change.fields[0].pieces


def test_a_default_that_is_written_out_is_no_change() -> None:
    after = criterion(
        "a", weight=1, threshold=0.5, required=False, params={}, applies={"min_steps": 0}
    )
    found = difference(rubric(criterion("a")), rubric(after, pass_threshold=1, groups=[], format=1))
    assert found.is_empty and found.n_same == 1


def test_added_removed_and_moved_are_told_apart() -> None:
    a, b, c, d = map(criterion, "abcd")
    assert told(rubric(a, b, c), rubric(b, c, d, a)) == [
        ("d", "added", ["kind"]),
        ("a", "moved", []),
    ]
    assert told(rubric(a, b), rubric(b)) == [("a", "removed", ["kind"])]


def test_groups_and_how_the_score_is_made_are_compared_too() -> None:
    before = rubric(criterion("a"), groups=[{"id": "g"}])
    after = rubric(criterion("a", group="g"), groups=[{"id": "g", "weight": 3}], pass_threshold=0.5)
    found = difference(before, after)
    assert [(g.id, g.what) for g in found.groups] == [("g", What.CHANGED)]
    assert [(f.name, f.before, f.after) for f in found.fields] == [("pass_threshold", "", "0.5")]
    assert found.n_changes == 3


def test_true_is_not_one() -> None:
    before, after = criterion("a", params={"x": 1}), criterion("a", params={"x": True})
    assert told(rubric(before), rubric(after)) == [("a", "changed", ["params.x"])]


def test_unfinished_sides_are_compared_as_far_as_they_go() -> None:
    broken: dict[str, Any] = {"criteria": ["no object", {"kind": "exact"}, {"id": "a"}]}
    assert difference(broken, broken).is_empty
    assert difference({}, {"criteria": None}).is_empty
    assert told({}, {"criteria": [{"id": "a"}]}) == [("a", "added", [])]


ids = st.lists(st.sampled_from("abcdef"), unique=True, max_size=6)


@given(ids, ids)
def test_a_rubric_against_itself_is_empty_and_every_id_is_told_once(
    one: list[str], two: list[str]
) -> None:
    before, after = rubric(*map(criterion, one)), rubric(*map(criterion, two))
    assert difference(before, before).is_empty
    found = difference(before, after)
    names = [item.id for item in found.criteria]
    assert len(names) == len(set(names))
    assert {i.id for i in found.criteria if i.what is What.ADDED} == set(two) - set(one)
    assert {i.id for i in found.criteria if i.what is What.REMOVED} == set(one) - set(two)
    moved = {i.id for i in found.criteria if i.what is What.MOVED}
    assert [i for i in one if i in two and i not in moved] == [
        i for i in two if i in one and i not in moved
    ]
