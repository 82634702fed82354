"""The quick look at an action says yes only where the validator does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.environments.actions import ActionSchema
from orchestrator.environments.errors import ActionRejectedError

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=3)
)
NAMES = st.sampled_from(["a", "b", "c"])
ABOUT = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "integer", "number", "boolean", "null", "object"]),
        "title": st.just("T"),
        "minLength": st.just(2),
        "enum": st.just(["x", 1]),
        "minimum": st.just(0),
        "const": st.just("x"),
        "anyOf": st.just([{"type": "string"}, {"type": "null"}]),
    },
)
SCHEMAS = st.fixed_dictionaries(
    {"properties": st.dictionaries(NAMES, ABOUT)},
    optional={
        "type": st.sampled_from(["object", "string"]),
        "additionalProperties": st.sampled_from([False, True, {"type": "string"}]),
        "required": st.lists(NAMES, unique=True),
        "minProperties": st.just(2),
        "not": st.just({"required": ["a"]}),
    },
)


@settings(max_examples=300, deadline=None)
@given(schema=SCHEMAS, action=st.dictionaries(NAMES, VALUES))
@example(
    schema={
        "type": "object",
        "additionalProperties": False,
        "properties": {"a": {"type": "number"}},
    },
    action={"a": True},
)
def test_it_agrees_with_the_validator(schema: dict[str, Any], action: dict[str, Any]) -> None:
    fits = Draft202012Validator(schema).is_valid(action)
    try:
        ActionSchema(schema).check(action)
    except ActionRejectedError:
        assert not fits
    else:
        assert fits


def test_most_actions_need_no_more_than_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = ActionSchema(
        {
            "type": "object",
            "additionalProperties": False,
            "title": "Message",
            "required": ["message"],
            "properties": {
                "message": {"type": "string", "title": "Message"},
                "metadata": {"type": "object", "additionalProperties": True},
            },
        }
    )
    monkeypatch.setattr(Draft202012Validator, "iter_errors", None)
    schema.check({"message": "hello"})
    with pytest.raises(TypeError):
        schema.check({"message": 1})
