"""The quick look at an action says yes only where the validator does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from orchestrator.environments import actions
from orchestrator.environments.actions import ActionSchema, action_schema
from orchestrator.environments.connection import Address
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


@pytest.mark.parametrize(
    "part",
    [
        pytest.param({"$ref": "#/$defs/nowhere"}, id="leads nowhere"),
        pytest.param({"$ref": "#/properties/a"}, id="leads in a circle"),
    ],
)
def test_what_turns_out_to_be_no_schema_leaves_the_action_to_the_server(
    part: dict[str, Any],
) -> None:
    schema = {"type": "object", "properties": {"a": part}}
    Draft202012Validator.check_schema(schema)
    ActionSchema(schema).check({"a": "x"})


@contextlib.contextmanager
def publishing(body: bytes, *, status: int = 200) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(OSError):  # whoever asked has heard enough
                self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("body", "status", "is_schema"),
    [
        pytest.param(b'{"action": {"type": "object"}}', 200, True, id="a schema"),
        pytest.param(b'{"action": {"type": "object"}}', 500, False, id="a failure"),
        pytest.param(b"no JSON", 200, False, id="no JSON"),
        pytest.param(b"[" * 200_000, 200, False, id="nested without end"),
        pytest.param(
            b'{"action": {"title": "' + b"x" * actions.MAX_SCHEMA_BYTES + b'"}}',
            200,
            False,
            id="too large",
        ),
    ],
)
def test_what_a_server_publishes_is_a_schema_or_nothing(
    body: bytes, status: int, is_schema: bool
) -> None:
    with publishing(body, status=status) as url:
        found = asyncio.run(action_schema(Address(url), timeout_s=5))
    assert (found is not None) is is_schema


def test_schemas_of_servers_that_are_gone_are_not_kept_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(actions, "_kept", {})
    for number in range(actions.MAX_KEPT + 10):
        actions._keep(f"unix:///{number}.sock", None)
    assert len(actions._kept) == actions.MAX_KEPT
    assert f"unix:///{number}.sock" in actions._kept
