"""How replies and function calls become actions, and what agents are told of a schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.environments.actions import ActionSchema, Malformed
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.kinds.acting import (
    ACT,
    Described,
    Interface,
    ObjectInterface,
    Tool,
    ToolInterface,
    call_tool,
    interface_of,
)
from orchestrator.environments.kinds.foreign import NOTHING, ForeignActions
from orchestrator.environments.kinds.schema_words import example_of, fields_in_words

FIND = Tool(
    "find.order",
    "Find an order.",
    {
        "type": "object",
        "properties": {"id": {"type": "string"}, "limit": {"type": "integer", "default": 3}},
        "required": ["id"],
    },
)
PAY = Tool(
    "pay",
    "Pay.",
    {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]},
)
TOOLS = ToolInterface([FIND, PAY])
CALL_TOOL = {
    "type": "object",
    "properties": {
        "type": {"const": "call_tool", "default": "call_tool"},
        "tool_name": {"type": "string"},
        "arguments": {"type": "object"},
    },
    "required": ["tool_name"],
}


@pytest.mark.parametrize(
    ("reply", "name", "arguments"),
    [
        ("find.order id=7 limit=2", "find.order", {"id": "7", "limit": 2}),
        ('find.order id="two words"', "find.order", {"id": "two words"}),
        ('find.order {"id": "7"}', "find.order", {"id": "7"}),
        ('find.order({"id": "7"})', "find.order", {"id": "7"}),
        ('find.order {\n "id": "7"\n}', "find.order", {"id": "7"}),
        ('{"tool_name": "pay", "arguments": {"amount": 2}}', "pay", {"amount": 2}),
        ('{"name": "pay", "arguments": {"amount": 2}}', "pay", {"amount": 2}),
        ('```json\n{"tool_name": "pay", "arguments": {"amount": 2}}\n```', "pay", {"amount": 2}),
        ('I shall pay.\n```\n{"tool": "pay", "args": {"amount": 2}}\n```', "pay", {"amount": 2}),
        ("\n\npay 12.5\nand more", "pay", {"amount": 12.5}),
        ("pay amount=12", "pay", {"amount": 12}),
        ("pay a lot", "pay", {"amount": "a lot"}),
        ("pay", "pay", {}),
        ("find_order id=7", "find.order", {"id": "7"}),
    ],
)
def test_a_text_becomes_a_call(reply: str, name: str, arguments: dict[str, Any]) -> None:
    assert TOOLS.read(reply) == call_tool(name, arguments)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "name of a tool (find.order, pay)"),
        ("let me think", "name of a tool"),
        ("find.order 7 8", "'7' is not key=value"),
        ('find.order id="7', "No closing quotation"),
        ('pay {"amount": }', "arguments of pay: not a JSON object"),
        ('{"arguments": {}}', "no tool_name"),
        ('{"tool_name": "pay", "arguments": [1]}', "arguments of pay: not a JSON object"),
        ("{", "not a JSON object (Expecting"),
    ],
)
def test_a_text_that_is_no_call_says_why(reply: str, reason: str) -> None:
    action = TOOLS.read(reply)
    assert isinstance(action, Malformed)
    assert reason in action.reason
    assert action == reply or reply.strip() == action


@given(st.text(max_size=60))
def test_no_reply_raises(reply: str) -> None:
    for interface in (TOOLS, ObjectInterface({"properties": {"n": {"type": "integer"}}})):
        action = interface.read(reply)
        assert isinstance(action, Malformed | dict)


_ARGUMENTS = st.dictionaries(
    st.from_regex(r"[a-z]{1,5}", fullmatch=True),
    st.one_of(st.text(max_size=10), st.integers(), st.booleans(), st.none()),
    max_size=3,
)


@given(_ARGUMENTS)
def test_arguments_in_json_arrive_as_they_are(arguments: dict[str, Any]) -> None:
    assert TOOLS.read(f"pay {json.dumps(arguments)}") == call_tool("pay", arguments)


def test_function_names_are_narrower_than_tool_names() -> None:
    assert TOOLS.call("find_order", {"id": "1"}) == call_tool("find.order", {"id": "1"})
    assert TOOLS.call("unknown", {}) == call_tool("unknown", {})


def test_tools_are_told_with_their_arguments_and_an_example() -> None:
    told = TOOLS.instructions
    assert "- find.order: Find an order." in told
    assert "id (text)" in told
    assert "limit (whole number, optional, else 3)" in told
    example = told.rpartition("for instance: ")[2]
    assert TOOLS.read(example) == call_tool("find.order", {"id": "…"})


def test_a_harness_may_describe_a_tool_otherwise() -> None:
    words = Described("Pay only once.", {"amount": "In euros.", "unknown": "Nothing."})
    changed = TOOLS.described({"pay": words, "elsewhere": Described("Not here.")})
    assert [tool.description for tool in changed.tools] == ["Find an order.", "Pay only once."]
    assert "Pay only once." in changed.instructions
    before, after = TOOLS.tools[1].parameters, changed.tools[1].parameters
    assert after["properties"]["amount"]["description"] == "In euros."
    # Only words: what may be sent stays the environment's to say.
    assert {**after["properties"]["amount"], "description": ""} == {
        **before["properties"]["amount"],
        "description": "",
    }
    assert after["properties"].keys() == before["properties"].keys()
    assert TOOLS.described({"elsewhere": Described("Not here.")}) is TOOLS


def test_a_harness_may_describe_the_fields_of_an_action_otherwise() -> None:
    interface = ForeignActions().interface(SCHEMA, ())
    changed = interface.described({"act": Described(None, {"direction": "Up or down."})})
    assert changed.tools[0].description == interface.tools[0].description == "One move."
    assert "Up or down." in changed.instructions
    assert "Up or down." not in interface.instructions


SCHEMA = {
    "description": "One move.",
    "properties": {
        "metadata": {"type": "object"},
        "direction": {"$ref": "#/$defs/Direction", "description": "Where\nto."},
        "far": {"anyOf": [{"type": "integer", "minimum": 2}, {"type": "null"}], "default": None},
    },
    "required": ["direction"],
    "$defs": {"Direction": {"enum": ["UP", "DOWN"]}},
    "additionalProperties": False,
}


def test_an_unknown_schema_is_told_in_words_with_an_example_that_fits() -> None:
    interface = ObjectInterface(SCHEMA)
    assert "- direction (one of 'UP', 'DOWN'): Where to." in interface.instructions
    assert "- far (whole number at least 2, optional)" in interface.instructions
    assert "metadata" not in interface.instructions
    example = interface.instructions.rpartition("for instance: ")[2]
    ActionSchema(SCHEMA).check(interface.read(example))
    (tool,) = interface.tools
    assert (tool.name, tool.description) == (ACT, "One move.")
    assert set(tool.parameters["properties"]) == {"direction", "far"}
    assert interface.call(ACT, {"direction": "UP"}) == {"direction": "UP"}
    refused = interface.call("jump", {})
    assert isinstance(refused, Malformed)
    assert "'jump'" in refused.reason


@pytest.mark.parametrize(
    ("about", "reply", "action"),
    [
        ({"type": "string"}, "hello there", {"x": "hello there"}),
        ({"type": "integer"}, "4", {"x": 4}),
        ({"type": "number"}, "4", {"x": 4}),
        ({"type": "integer"}, '{"x": 2}', {"x": 2}),
    ],
)
def test_with_a_single_field_its_bare_value_is_enough(
    about: dict[str, Any], reply: str, action: dict[str, Any]
) -> None:
    assert ObjectInterface({"properties": {"x": about}}).read(reply) == action


@pytest.mark.parametrize("reply", ["four", "4.5", "[4]", "{4}", ""])
def test_a_bare_value_of_another_type_is_refused(reply: str) -> None:
    interface = ObjectInterface({"properties": {"x": {"type": "integer"}}})
    assert isinstance(interface.read(reply), Malformed)


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {},
        {"properties": {"x": True}},
        {"properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"$ref": "#/$defs/X"}}},
        {"oneOf": [{"type": "string"}]},
        {"properties": {"x": {"type": ["integer", "null"]}, "y": {"type": "array"}}},
    ],
)
def test_odd_schemas_are_told_as_far_as_they_are_understood(schema: dict[str, Any] | None) -> None:
    assert "JSON object" in ObjectInterface(schema).instructions
    fields_in_words(schema or {})
    json.dumps(example_of(schema or {}))


def test_a_server_of_tools_is_known_by_its_schema() -> None:
    listed: list[dict[str, Any]] = [
        {"name": "pay", "description": None, "input_schema": PAY.parameters},
        {"name": "odd", "input_schema": 3},
    ]
    interface = interface_of(KINDS["url"], CALL_TOOL, listed)
    assert [tool.name for tool in interface.tools] == ["pay", "odd"]
    assert interface.read("pay 3") == call_tool("pay", {"amount": 3})
    without = interface_of(KINDS["url"], CALL_TOOL)
    assert without.tools == ()
    assert without.read('{"tool_name": "x"}') == call_tool("x", {})
    assert without.read("x") == call_tool("x", {})


def test_a_kind_that_says_nothing_of_it_reads_text() -> None:
    interface = interface_of(KINDS["terminal"], {"properties": {"command": {"type": "string"}}})
    assert type(interface) is Interface
    assert (interface.tools, interface.instructions) == ((), "")
    assert interface.read("ls") == {"command": "ls"}


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        ({"tool_name": "a", "result": {"content": [{"text": "x"}, {"text": "y"}]}}, "x\ny"),
        ({"tool_name": "a", "result": {"content": [{"data": "…"}]}}, "(1 parts that are not text)"),
        ({"tool_name": "a", "result": {"content": [], "data": [1]}}, "[1]"),
        ({"tool_name": "a", "result": "plain", "error": None}, "plain"),
        ({"tool_name": "a", "result": None, "error": None}, "null"),
        (
            {"tool_name": "a", "error": {"error_type": "timeout", "message": "30 s"}},
            "error (timeout): 30 s",
        ),
        ({"x": 1, "y": "é"}, '{"x": 1, "y": "é"}'),
    ],
)
def test_an_observation_reads_as_what_matters_in_it(observation: dict[str, Any], text: str) -> None:
    assert ForeignActions().segments(observation) == [{"kind": "env_output", "text": text}]


@pytest.mark.parametrize("observation", [{}, {"text": ""}, {"a": None, "b": []}])
def test_nothing_to_see_is_said(observation: dict[str, Any]) -> None:
    assert ForeignActions().segments(observation) == [{"kind": "scaffold", "text": NOTHING}]
