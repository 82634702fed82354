"""Actions made from schemas, and comparisons of what came back: pure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.environments.conformance.comparing import comparable, differing_paths, leaves
from orchestrator.environments.conformance.probing import ActionMaker

EITHER = {
    "type": "object",
    "properties": {
        "metadata": {"type": "object"},
        "command": {"type": "string", "minLength": 1},
        "answer": {"type": "string", "minLength": 1},
    },
    "oneOf": [{"required": ["command"]}, {"required": ["answer"]}],
    "additionalProperties": False,
}
NESTED = {
    "$defs": {"Direction": {"enum": ["UP", "DOWN"], "type": "string"}},
    "type": "object",
    "properties": {
        "move": {"$ref": "#/$defs/Direction"},
        "steps": {"type": "integer", "minimum": 1, "maximum": 3},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "kind": {"const": "go"},
        "path": {"type": "array", "items": {"type": "number"}, "minItems": 2},
    },
    "required": ["move", "steps", "kind", "path"],
}


def test_alternatives_are_tried_one_by_one() -> None:
    made = list(ActionMaker(EITHER).with_text("hello"))
    assert made == [{"command": "hello"}, {"answer": "hello"}]
    assert ActionMaker(EITHER).minimal() == {"command": "x"}
    assert not list(ActionMaker(EITHER).with_text("")), "an empty text does not fit"


def test_references_bounds_and_constants_are_kept() -> None:
    maker = ActionMaker(NESTED)
    assert maker.minimal() == {"move": "UP", "steps": 1, "kind": "go", "path": [0.0, 0.0]}
    assert [action["note"] for action in maker.with_text("hi")] == ["hi"]
    assert [action["steps"] for action in maker.with_number(2)] == [2]
    assert not list(maker.with_number(9)), "above the maximum"
    assert maker.filled(move="DOWN") is not None
    assert maker.filled(move="LEFT") is None


def test_tools_are_called_with_the_arguments_of_their_schema() -> None:
    schema: dict[str, Any] = {"properties": {"type": {}, "tool_name": {}, "arguments": {}}}
    tools: list[dict[str, Any]] = [
        {"name": "say", "input_schema": {"type": "object", "required": ["text"],
                                         "properties": {"text": {"type": "string"}}}},
        {"name": "look"},
    ]  # fmt: skip
    made = list(ActionMaker(schema, tools).with_text("hi"))
    calls = [(action["tool_name"], action["arguments"]) for action in made]
    assert calls == [("say", {"text": "hi"}), ("look", {})]
    assert not list(ActionMaker(schema).with_text("hi"))


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"type": "object"},
        {"type": "nonsense"},
        {"$ref": "#/nowhere"},
        {"properties": {"n": {"type": "integer", "minimum": "low"}}},
    ],
)
def test_little_or_nothing_is_known(schema: Any) -> None:
    maker = ActionMaker(schema)
    assert list(maker.with_text("hi")) in ([], [{}])
    assert maker.text_fields() == []


parts = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "minLength": 2},
        {"type": "string", "pattern": "^[0-9]+$"},
        {"type": "integer", "minimum": 3},
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "boolean"},
        {"enum": [1, "two"]},
        {"anyOf": [{"type": "null"}, {"type": "string"}]},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 1},
    ]
)
schemas = st.dictionaries(st.sampled_from("abcd"), parts, max_size=4).flatmap(
    lambda properties: st.lists(st.sampled_from(sorted(properties) or ["a"]), unique=True).map(
        lambda required: {
            "type": "object",
            "properties": properties,
            "required": [name for name in required if name in properties],
            "additionalProperties": False,
        }
    )
)


@settings(deadline=None, max_examples=40)
@given(schema=schemas, text=st.text(max_size=8), number=st.integers(-5, 5))
def test_whatever_is_made_fits(schema: dict[str, Any], text: str, number: int) -> None:
    maker, validator = ActionMaker(schema), Draft202012Validator(schema)
    made = [*maker.with_text(text), *maker.with_text(None), *maker.with_number(number)]
    assert all(validator.is_valid(action) for action in made)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(deadline=None)
@given(value=values, other=values)
def test_equal_values_differ_nowhere(value: Any, other: Any) -> None:
    assert differing_paths(value, value) == []
    assert bool(differing_paths(value, other)) == (
        dict(leaves(comparable(value))) != dict(leaves(comparable(other)))
    )


def test_names_of_episodes_are_no_difference() -> None:
    one = {"episode_id": "a", "board": [{"cell": 1, "metadata": {"x": 1}}]}
    two = {"episode_id": "b", "board": [{"cell": 2, "metadata": {"x": 2}}]}
    assert differing_paths(one, two) == ["board[0].cell"]
