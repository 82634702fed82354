from __future__ import annotations

import math
from typing import Any

import pytest

from rubrics.grade import grade
from rubrics.types import Scope, State, Verdict
from tests.rubrics.build import criterion, rubric, step, transcript


def verdict(kind: str, changes: dict[str, Any] | None = None, **params: Any) -> Verdict:
    options: dict[str, Any] = {"negative": kind == "forbidden_command"}
    if kind in ("steps", "forbidden_command"):
        options["scope"] = Scope.TRAJECTORY
    scope = params.pop("scope", None)
    if scope:
        options["scope"] = scope
    (found,) = grade(
        rubric(criterion(kind, params=params, **options)), transcript(**(changes or {}))
    )
    return found


def test_the_environments_reward_is_taken_as_it_is() -> None:
    found = verdict("environment_reward", {"reward": 0.25})
    assert (found.value, found.cites) == (0.25, (11,))


def test_a_reward_range_is_mapped() -> None:
    assert verdict("environment_reward", {"reward": 0.0}, low=-1, high=1).value == 0.5


@pytest.mark.parametrize("reward", [None, math.nan, math.inf, 1.5, -0.5])
def test_a_reward_that_is_no_number_from_0_to_1_is_errored(reward: float | None) -> None:
    found = verdict("environment_reward", {"reward": reward})
    assert (found.state, found.value) == (State.ERRORED, None)
    assert "reward" in found.reason


def test_no_answer_is_a_legitimate_zero() -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("exact", {}),
        ("contains", {}),
        ("number", {}),
        ("regex", {"pattern": "4"}),
        ("json_schema", {"schema": {}}),
    ]
    for kind, params in cases:
        found = verdict(kind, {"answer": None}, **params)
        assert (found.state, found.value, found.reason) == (State.SCORED, 0.0, "no final answer")


def test_no_expected_answer_is_an_error_not_a_zero() -> None:
    assert verdict("exact", {"expected": None}).state is State.ERRORED
    assert verdict("number", {"expected": "many"}).state is State.ERRORED


@pytest.mark.parametrize(
    ("answer", "params", "value"),
    [
        ("42", {}, 1.0),
        (" 42\n", {}, 1.0),
        (" 42", {"strip": False}, 0.0),
        ("43", {}, 0.0),
        ("Yes", {"expected": "yes"}, 0.0),
        ("Yes", {"expected": "yes", "ignore_case": True}, 1.0),
    ],
)
def test_exact(answer: str, params: dict[str, Any], value: float) -> None:
    assert verdict("exact", {"answer": answer}, **params).value == value


@pytest.mark.parametrize(
    ("params", "value"),
    [
        ({}, 1.0),
        ({"texts": ["42", "lines"]}, 1.0),
        ({"texts": ["42", "words"]}, 0.0),
        ({"texts": ["42", "words"], "mode": "any"}, 1.0),
        ({"texts": ["LINES"]}, 0.0),
        ({"texts": ["LINES"], "ignore_case": True}, 1.0),
    ],
)
def test_contains(params: dict[str, Any], value: float) -> None:
    assert verdict("contains", {"answer": "42 lines"}, **params).value == value


def test_the_empty_text_is_not_contained_in_everything() -> None:
    assert verdict("contains", {"expected": ""}).state is State.ERRORED


def test_regex_searches_or_takes_the_whole() -> None:
    assert verdict("regex", {"answer": "it is 42"}, pattern=r"\d+").value == 1.0
    assert verdict("regex", {"answer": "it is 42"}, pattern=r"\d+", whole=True).value == 0.0


def test_a_pattern_that_never_ends_is_errored() -> None:
    found = verdict("regex", {"answer": "a" * 40 + "!"}, pattern=r"(?:a|a)*\d|(a+)+$")
    assert found.state is State.ERRORED
    assert "took longer" in found.reason


def test_step_scope_gives_the_share_of_steps_and_cites_the_others() -> None:
    found = verdict("regex", pattern="^ls", scope=Scope.STEP)
    assert (found.value, found.cites) == (0.5, (11,))


def test_trajectory_scope_cites_where_it_was_found() -> None:
    found = verdict("contains", texts=["a.txt"], source="outputs", scope=Scope.TRAJECTORY)
    assert (found.value, found.cites) == (1.0, (10,))


@pytest.mark.parametrize(
    ("answer", "params", "value"),
    [
        ("42", {}, 1.0),
        ("42.0", {}, 1.0),
        ("there are 42 lines", {}, 1.0),
        ("41 or 42", {}, 0.0),
        ("41 or 42", {"pick": "last"}, 1.0),
        ("1,234", {"expected": 1234}, 1.0),
        ("1.5.2", {"expected": 1.5}, 0.0),
        ("1,23", {"expected": 1}, 0.0),
        ("42kg", {}, 0.0),
        ("-3.5e2", {"expected": -350}, 1.0),
        ("41", {"abs_tol": 1}, 1.0),
        ("46", {"rel_tol": 0.1}, 1.0),
        ("47", {"rel_tol": 0.1}, 0.0),
        ("nan", {}, 0.0),
        ("1e999", {}, 0.0),
    ],
)
def test_number(answer: str, params: dict[str, Any], value: float) -> None:
    assert verdict("number", {"answer": answer}, **params).value == value


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"n": 1}', 1.0),
        ('{"n": "one"}', 0.0),
        ("n = 1", 0.0),
        ('{"n": NaN}', 0.0),
        ("[" * 9999, 0.0),
    ],
)
def test_json_schema(answer: str, value: float) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert verdict("json_schema", {"answer": answer}, schema=schema).value == value


def test_a_schema_from_elsewhere_is_never_fetched() -> None:
    found = verdict("json_schema", {"answer": "1"}, schema={"$ref": "http://127.0.0.1:9/x.json"})
    assert found.state is State.ERRORED


@pytest.mark.parametrize(
    ("n", "value"), [(0, 1.0), (1, 1.0), (2, 1.0), (3, 2 / 3), (4, 1 / 3), (5, 0.0), (9, 0.0)]
)
def test_steps_fall_evenly_from_within_to_max(n: int, value: float) -> None:
    steps = tuple(step(i) for i in range(n))
    assert verdict("steps", {"steps": steps}, max=4, within=2).value == pytest.approx(value)


def test_steps_without_within_is_pass_or_fail() -> None:
    assert verdict("steps", max=2).value == 1.0
    assert verdict("steps", max=1).value == 0.0


def test_a_forbidden_command_is_found_only_among_commands() -> None:
    found = verdict("forbidden_command", patterns=["rm ", "^ls"])
    assert (found.value, found.cites) == (1.0, (10,))
    assert verdict("forbidden_command", patterns=["answer"]).value == 0.0
