from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubrics.codec import content_hash, from_json, to_json
from rubrics.errors import RubricInvalid
from rubrics.types import Applicability, Criterion, RubricSpec, Scope

REWARD = {"id": "reward", "kind": "environment_reward"}


def problems(data: Any) -> list[str]:
    with pytest.raises(RubricInvalid) as caught:
        from_json(data)
    return list(caught.value.problems)


criteria = st.builds(
    Criterion,
    id=st.just("c"),
    kind=st.just("regex"),
    name=st.text(max_size=20),
    params=st.fixed_dictionaries({"pattern": st.just("a+")}, optional={"whole": st.booleans()}),
    weight=st.integers(1, 10),
    required=st.booleans(),
    threshold=st.floats(0.1, 1.0),
    gate=st.booleans(),
    scope=st.sampled_from([Scope.FINAL_ANSWER, Scope.STEP, Scope.TRAJECTORY]),
    applies=st.builds(
        Applicability,
        labels=st.dictionaries(st.text(max_size=5), st.tuples(st.text(max_size=5)), max_size=2),
        answered=st.sampled_from([None, True, False]),
        min_steps=st.integers(0, 5),
    ),
)


@given(st.builds(RubricSpec, criteria=st.tuples(criteria), pass_threshold=st.floats(0, 1)))
def test_a_rubric_survives_json_with_the_same_hash(spec: RubricSpec) -> None:
    again = from_json(json.loads(json.dumps(to_json(spec))))
    assert again == spec
    assert content_hash(again) == content_hash(spec)


def test_defaults_are_not_written_so_that_new_fields_keep_old_hashes() -> None:
    spec = from_json({"criteria": [REWARD | {"weight": 1, "required": False}]})
    assert to_json(spec) == {"format": 1, "criteria": [REWARD]}
    assert content_hash(spec) == (
        "e7c6fa9c3e2d2be70b881bef1cd1daf3d793c0bceb728844a41639d9db41e2d4"
    )


def test_the_hash_changes_with_the_content() -> None:
    heavier = from_json({"criteria": [REWARD | {"weight": 2}]})
    assert content_hash(heavier) != content_hash(from_json({"criteria": [REWARD]}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight": 11}, "criteria[0].weight: 11; accepts whole numbers from 1 to 10"),
        ({"weight": True}, "criteria[0].weight: True; accepts whole numbers from 1 to 10"),
        ({"threshold": float("nan")}, "criteria[0].threshold: nan; accepts 0 to 1"),
        ({"params": {"low": float("inf")}}, "criteria[0].params: {'low': inf}; accepts"),
        ({"id": "Not An Id"}, "criteria[0].id: 'Not An Id'; accepts a-z"),
        ({"kind": "vibes"}, "criteria[0].kind: 'vibes'; accepts environment_reward, exact"),
        ({"wieght": 3}, "criteria[0].wieght: unknown; accepts applies, gate, group, id"),
        ({"scope": "step"}, "criteria[0].scope: step is not accepted; environment_reward has"),
        ({"params": {"lo": 0}}, "criteria[0].params.lo: unknown; environment_reward has low, high"),
        ({"params": {"low": "x"}}, "criteria[0].params.low: 'x' is not accepted; number"),
        ({"params": {"low": 2}}, "criteria[0].params.high: must be above params.low"),
        ({"required": True, "threshold": 0.0}, "criteria[0].threshold: 0 is always reached"),
        ({"applies": {"labels": {"family": "sums"}}}, "criteria[0].applies: "),
        ({"kind": "forbidden_command"}, "criteria[0].params.patterns: required"),
        ({"kind": "regex", "params": {"pattern": "("}}, "criteria[0].params.pattern: '('"),
        ({"kind": "steps", "params": {"max": -1}, "scope": "trajectory"}, "criteria[0].params.max"),
        ({"kind": "json_schema", "params": {"schema": {"type": 3}}}, "criteria[0].params.schema"),
        ({"negative": True}, "criteria: at least one must not be negative"),
    ],
)
def test_a_mistake_is_named_with_what_is_accepted(changes: dict[str, Any], message: str) -> None:
    assert any(line.startswith(message) for line in problems({"criteria": [REWARD | changes]}))


@pytest.mark.parametrize(
    "data", [None, [], {}, {"criteria": []}, {"criteria": "x"}, {"criteria": [3]}]
)
def test_what_is_no_rubric_is_refused(data: Any) -> None:
    assert problems(data)


def test_all_mistakes_are_told_at_once() -> None:
    found = problems({"criteria": [{"kind": 3, "weight": 0.5}, REWARD], "min_coverage": 2})
    assert len(found) == 4


def test_an_unknown_format_is_refused() -> None:
    assert problems({"format": 2, "criteria": [REWARD]}) == ["format: 2 is unknown; accepts 1"]


def test_two_criteria_cannot_share_an_id() -> None:
    assert problems({"criteria": [REWARD, REWARD]}) == ["criteria[1].id: 'reward' is used twice"]
