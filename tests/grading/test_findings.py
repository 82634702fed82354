"""Problems and advice come with the criterion and the field that they are about."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.grading.diff import difference
from orchestrator.grading.findings import read
from rubrics.kinds import KINDS
from rubrics.kinds.base import Kind


def where(notes: Any) -> set[tuple[str, str]]:
    return {(note.criterion, note.field) for note in notes}


def test_an_unfinished_criterion_hides_nothing_of_its_neighbours() -> None:
    reading = read(
        {
            "criteria": [
                {"id": "a", "kind": "exact", "weight": "heavy"},
                {"id": "b", "kind": "regex", "params": {"pattern": "("}},
                {"id": "c", "kind": "judge", "params": {"question": "Is the answer nice?"}},
                {"id": "d", "kind": "exact", "group": "nowhere"},
            ]
        }
    )
    assert reading.spec is None
    assert where(reading.problems) == {("a", "weight"), ("b", "params.pattern")}
    assert ("c", "params.question") in where(reading.findings)


def test_each_problem_is_told_once() -> None:
    reading = read({"criteria": [{"id": "a", "kind": "regex"}], "pass_threshold": 2})
    assert sorted((n.criterion, n.field) for n in reading.problems) == [
        ("", "pass_threshold"),
        ("a", "params.pattern"),
    ]
    assert all(note.text for note in reading.problems)


def test_groups_are_named_by_their_id() -> None:
    reading = read({"criteria": [{"id": "a", "kind": "exact"}], "groups": [{"id": "g"}]})
    assert [(n.group, n.field) for n in reading.problems] == [("g", "id")]


def test_an_empty_rubric_asks_for_a_criterion() -> None:
    (note,) = read({"criteria": []}).problems
    assert (note.field, note.criterion) == ("criteria", "")


def test_a_finished_rubric_has_its_spec_and_advice_on_the_whole() -> None:
    reading = read({"criteria": [{"id": "s", "kind": "steps", "params": {"max": 3}}]})
    assert reading.spec is None  # steps needs the scope of the trajectory
    reading = read(
        {"criteria": [{"id": "s", "kind": "steps", "params": {"max": 3}, "scope": "trajectory"}]}
    )
    assert not reading.problems
    assert "nothing-to-do" in {note.code for note in reading.findings}


ODD: list[Any] = [
    None, True, 0, -1, 1.5, "", "(", [], {}, [[]], [{}], {"a": []}, "\x00", "(" * 1000,
    "-" * 50_000 + "1", [None], ["("],
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_no_parameter_whatever_it_holds_ends_the_reading(kind: Kind) -> None:
    base = {"id": "a", "kind": kind.name, "scope": kind.scopes[0].value}
    for param in kind.params:
        for value in ODD:
            read({"criteria": [{**base, "params": {param.name: value}}]})


@pytest.mark.parametrize(
    "field", ["kind", "name", "params", "weight", "threshold", "scope", "applies", "group"]
)
def test_no_field_whatever_it_holds_ends_the_reading(field: str) -> None:
    for value in ODD:
        data = {"criteria": [{"id": "a", "kind": "exact", field: value}]}
        read(data)
        difference(data, {"criteria": [{"id": "a", "kind": "exact"}]})
