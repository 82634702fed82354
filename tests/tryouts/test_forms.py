"""Forms from schemas, and back from what was typed to the value that is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.tryouts.forms import (
    RAW,
    VARIANT,
    ActionForm,
    action_form,
    read_action,
)

EXACTLY_ONE = {
    "type": "object",
    "additionalProperties": False,
    "oneOf": [{"required": ["command"]}, {"required": ["answer"]}],
    "properties": {
        "metadata": {"type": "object"},
        "command": {"type": "string", "maxLength": 2000},
        "answer": {"type": "string", "maxLength": 100},
        "dry": {"type": "boolean", "default": False},
    },
}
KINDS = {
    "type": "object",
    "required": ["name", "count", "mode"],
    "$defs": {"Mode": {"enum": ["fast", "slow", 3], "description": "How."}},
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer", "minimum": 1},
        "share": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "mode": {"$ref": "#/$defs/Mode"},
        "is_on": {"type": "boolean"},
        "items": {"type": "array", "items": {"type": "string"}},
        "options": {"type": "object"},
        "anything": {},
        "kind": {"const": "do"},
    },
}


def sent(form: ActionForm, variant: str, **values: str) -> Any:
    data = {VARIANT: variant, **{f"{variant}.{name}": text for name, text in values.items()}}
    return read_action(form, data)


def test_alternatives_become_variants_that_share_the_rest() -> None:
    form = action_form(EXACTLY_ONE, [])
    assert [v.label for v in form.variants] == ["command", "answer"]
    assert [[f.name for f in v.fields] for v in form.variants] == [
        ["command", "dry"],
        ["answer", "dry"],
    ]
    assert [v.fields[0].is_required for v in form.variants] == [True, True]
    assert sent(form, "v1", answer="3").value == {"answer": "3", "dry": False}
    assert sent(form, "v0", command=" ls\r\npwd ").value == {"command": " ls\npwd ", "dry": False}
    assert sent(form, "v0", command="").errors == {"v0.command": "is needed"}
    assert sent(form, "v7").errors == {VARIANT: "choose what to send"}


def test_every_type_has_its_field() -> None:
    (variant,) = action_form(KINDS, []).variants
    types = {field.name: (field.type, field.is_required) for field in variant.fields}
    assert types == {
        "name": ("text", True),
        "count": ("integer", True),
        "share": ("number", False),
        "mode": ("choice", True),
        "is_on": ("flag", False),
        "items": ("json", False),
        "options": ("json", False),
        "anything": ("json", False),
    }
    assert variant.constants == {"kind": "do"}
    read = sent(
        ActionForm((variant,)),
        "v0",
        name="x",
        count="7",
        share="0.5",
        mode="2",
        is_on="on",
        items='["a"]',
    )
    assert read.value == {
        "kind": "do",
        "name": "x",
        "count": 7,
        "share": 0.5,
        "mode": 3,
        "is_on": True,
        "items": ["a"],
    }


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("count", "1.5", "a whole number is needed"),
        ("share", "nan", "a finite number is needed"),
        ("share", "much", "a number is needed"),
        ("mode", "9", "choose one of the list"),
        ("items", '{"a": 1}', "a JSON list is needed"),
        ("options", "[]", "a JSON object is needed"),
        ("anything", "{", "not JSON: Expecting property name enclosed in double quotes"),
        ("anything", "NaN", "NaN is not JSON"),
    ],
)
def test_what_does_not_fit_is_said_beside_its_field(name: str, text: str, reason: str) -> None:
    form = action_form(KINDS, [])
    good = {"name": "x", "count": "1", "mode": "0"}
    read = sent(form, "v0", **{**good, name: text})
    assert read.value is None
    assert list(read.errors) == [f"v0.{name}"]
    assert read.errors[f"v0.{name}"].startswith(reason)


def test_a_union_of_objects_has_a_variant_for_each() -> None:
    schema = {
        "$defs": {
            "Move": {"type": "object", "properties": {"type": {"const": "move"}, "to": {}}},
            "Stop": {"type": "object", "properties": {"type": {"const": "stop"}}},
        },
        "oneOf": [{"$ref": "#/$defs/Move"}, {"$ref": "#/$defs/Stop"}],
    }
    form = action_form(schema, [])
    assert [v.label for v in form.variants] == ["move", "stop"]
    assert sent(form, "v1").value == {"type": "stop"}


def test_a_server_of_tools_has_a_form_for_each_tool() -> None:
    schema = {"properties": {"type": {"const": "call_tool"}, "tool_name": {"type": "string"}}}
    tools: list[dict[str, Any]] = [
        {
            "name": "find_user",
            "description": "Looks\n somebody up.",
            "inputSchema": {"properties": {"id": {"type": "integer"}}, "required": ["id"]},
        },
        {"name": "list_all"},
    ]
    form = action_form(schema, tools)
    assert [(v.label, v.help) for v in form.variants] == [
        ("find_user", "Looks somebody up."),
        ("list_all", ""),
    ]
    assert sent(form, "v0", id="4").value == {
        "type": "call_tool",
        "tool_name": "find_user",
        "arguments": {"id": 4},
    }
    assert sent(form, "v1").value["arguments"] == {}


@pytest.mark.parametrize("schema", [None, {}, {"type": "string"}, {"anyOf": [{"type": "null"}]}])
def test_without_a_usable_schema_there_is_raw_json(schema: Any) -> None:
    form = action_form(schema, [])
    assert form.variants == ()
    assert read_action(form, {RAW: '{"a": 1}'}).value == {"a": 1}
    assert "JSON object" in read_action(form, {RAW: "[1]"}).errors[RAW]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8), JSON_VALUES, max_size=4))
def test_raw_json_arrives_as_it_was_typed(action: dict[str, Any]) -> None:
    form = action_form(KINDS, [])
    assert read_action(form, {VARIANT: RAW, RAW: json.dumps(action)}).value == action


@given(JSON_VALUES)
def test_no_schema_is_too_odd_for_a_form(schema: Any) -> None:
    """Whatever a server publishes in the place of a property."""
    if not isinstance(schema, dict):
        schema = {"properties": {"a": schema}}
    try:
        Draft202012Validator.check_schema(schema)
    except Exception:
        return
    form = action_form(schema, [])
    for variant in form.variants:
        assert not sent(form, variant.key).value or isinstance(sent(form, variant.key).value, dict)


@given(
    name=st.text(min_size=1, max_size=20),
    count=st.integers(),
    share=st.floats(allow_nan=False, allow_infinity=False),
    mode=st.sampled_from(["fast", "slow", 3]),
    items=st.lists(st.text(max_size=4), max_size=3),
)
def test_what_is_typed_is_what_is_sent(
    name: str, count: int, share: float, mode: Any, items: list[str]
) -> None:
    form = action_form(KINDS, [])
    read = sent(
        form,
        "v0",
        name=name,
        count=str(count),
        share=repr(share),
        mode=str(["fast", "slow", 3].index(mode)),
        items=json.dumps(items),
    )
    assert read.value == {
        "kind": "do",
        "name": name.replace("\r\n", "\n"),
        "count": count,
        "share": share,
        "mode": mode,
        "is_on": False,
        "items": items,
    }
