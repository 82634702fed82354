"""Spans by OTLP: by hand, and in `test_otlp_sdk` by the exporter of the SDK of OpenTelemetry."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from orchestrator.runs.transcripts import transcript_of
from orchestrator.traces.conventions import said_by
from orchestrator.traces.models import OutsideRollout, RefusedItem
from orchestrator.traces.otlp import read_json, read_protobuf, stamp
from orchestrator.traces.reading import Item, Refused
from tests.base import People

PROTOBUF = "application/x-protobuf"
TRACE, ROOT, CHILD = "ab" * 16, "01" * 8, "02" * 8
AT_NS = 1_767_323_045_123_456_789


def span(span_id: str = ROOT, **fields: Any) -> dict[str, Any]:
    return {
        "traceId": TRACE,
        "spanId": span_id,
        "name": "step",
        "startTimeUnixNano": str(AT_NS),
        "endTimeUnixNano": str(AT_NS + 1_000),
        **fields,
    }


def text(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def request_of(*spans: Any, resource: list[Any] | None = None) -> bytes:
    scoped = {"scope": {"name": "test", "version": "1"}, "spans": list(spans)}
    group = {"resource": {"attributes": resource or []}, "scopeSpans": [scoped]}
    return json.dumps({"resourceSpans": [group]}).encode()


def send(
    people: People, body: bytes, content_type: str = "application/json", **headers: str
) -> Any:
    issued = issue_token(
        actor=people.editor, project_id=people.project.pk, name="t", role=Role.EDITOR
    )
    return Client().post(
        reverse("api:otlp_traces", args=[people.project.pk]),
        body,
        content_type=content_type,
        headers={"Authorization": f"Bearer {issued.secret}", **headers},
    )


@pytest.mark.django_db
def test_spans_come_over_requests_children_before_parents(people: People) -> None:
    child = span(
        CHILD,
        parentSpanId=ROOT,
        startTimeUnixNano=str(AT_NS + 10),
        attributes=[
            text("gen_ai.operation.name", "chat"),
            text("gen_ai.output.messages", '[{"role": "assistant", "content": "the answer"}]'),
            {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "12"}},
            {"key": "gen_ai.usage.output_tokens", "value": {"intValue": 3}},
        ],
    )
    assert send(people, request_of(child)).json() == {}
    assert send(people, request_of(span(), child)).json() == {}
    owner = OutsideRollout.objects.get()
    assert json.loads(owner.name) == TRACE
    told = [json.loads(event.body) for event in owner.events.order_by("position")]
    assert [(e["id"], e.get("parent"), e["kind"], e.get("content")) for e in told] == [
        (ROOT, None, "span", None),
        (CHILD, ROOT, "model_call", "the answer"),
    ]
    assert told[0]["started_at"] == "2026-01-02T03:04:05.123456789Z"
    # Whoever grades reads them in the order in which they began.
    assert [step.seq for step in transcript_of(owner.rollout).steps] == [2, 1]
    owner.rollout.refresh_from_db()
    assert (owner.rollout.tokens_in, owner.rollout.tokens_out) == (12, 3)


@pytest.mark.django_db
def test_a_refused_span_spoils_no_other_and_is_kept(people: People) -> None:
    bad = span("zz")
    other = span(attributes=[text("changed", "yes")])
    response = send(people, request_of(span(), bad, {**span(CHILD), "traceId": ""}, other, 5))
    assert response.status_code == 200
    told = response.json()["partialSuccess"]
    assert told["rejectedSpans"] == "4"
    assert "span 3: an event of this id has other content" in told["errorMessage"]
    assert sorted(RefusedItem.objects.values_list("index", "reason_kind")) == [
        (1, "bad_span"),
        (2, "missing_field"),
        (3, "id_conflict"),
        (4, "bad_span"),
    ]


@pytest.mark.django_db
def test_protobuf_and_gzip_are_answered_in_kind(people: People) -> None:
    body = protobuf_of(request_of(span(), resource=[text("switchback.rollout", "episode 7")]))
    response = send(people, gzip.compress(body, mtime=0), PROTOBUF, **{"Content-Encoding": "gzip"})
    assert (response.status_code, response["Content-Type"]) == (200, PROTOBUF)
    answer = ExportTraceServiceResponse()
    answer.ParseFromString(response.content)
    assert not answer.partial_success.rejected_spans
    assert json.loads(OutsideRollout.objects.get().name) == "episode 7"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("body", "content_type", "coding", "status"),
    [
        (b"\xff\xff", PROTOBUF, "", 400),
        (b"[]", "application/json", "", 400),
        (b'{"resourceSpans": [1]}', "application/json", "", 400),
        (b"{", "application/json", "", 400),
        (b"[" * 100_000, "application/json", "", 400),
        (b"", "text/plain", "", 415),
        (b"plain", PROTOBUF, "gzip", 400),
        (gzip.compress(b"x" * 100, mtime=0)[:-9], PROTOBUF, "gzip", 400),
        (b"x", PROTOBUF, "br", 415),
    ],
)
def test_what_is_no_request_is_told_so(
    people: People, body: bytes, content_type: str, coding: str, status: int
) -> None:
    headers = {"Content-Encoding": coding} if coding else {}
    response = send(people, body, content_type, **headers)
    assert (response.status_code, response["Content-Type"]) == (status, "application/problem+json")


@pytest.mark.django_db
def test_a_small_body_that_opens_into_a_large_one_is_refused(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.api.otlp.BODY_BYTES", 10_000)
    bomb = gzip.compress(b"\0" * 5_000_000, mtime=0)
    response = send(people, bomb, PROTOBUF, **{"Content-Encoding": "gzip"})
    assert response.status_code == 413
    assert "10,000 bytes" in response.json()["detail"]
    assert send(people, b"\0" * 10_001, PROTOBUF).status_code == 413


# Reading, without a database


def protobuf_of(body: bytes) -> bytes:
    """The same request in protobuf, by the rules for the JSON of OTLP."""
    from google.protobuf.json_format import Parse

    from orchestrator.traces.otlp import _with_bytes

    value = json.loads(body)
    for group in value["resourceSpans"]:
        for scoped in group["scopeSpans"]:
            scoped["spans"] = [_with_bytes(one) for one in scoped["spans"]]
    made: bytes = Parse(json.dumps(value), ExportTraceServiceRequest()).SerializeToString()
    return made


VALUES = st.recursive(
    st.fixed_dictionaries({"stringValue": st.text(st.characters(codec="utf-8"), max_size=20)})
    | st.fixed_dictionaries({"boolValue": st.booleans()})
    | st.fixed_dictionaries({"intValue": st.integers(-(2**63), 2**63 - 1).map(str)})
    | st.fixed_dictionaries({"doubleValue": st.floats() | st.sampled_from(["NaN", "Infinity"])}),
    lambda inner: st.fixed_dictionaries(
        {"arrayValue": st.fixed_dictionaries({"values": st.lists(inner, max_size=3)})}
    ),
    max_leaves=6,
)
SPANS = st.fixed_dictionaries(
    {
        "traceId": st.binary(min_size=16, max_size=16).map(bytes.hex),
        "spanId": st.binary(min_size=8, max_size=8).map(bytes.hex),
        "startTimeUnixNano": st.integers(0, 2**64 - 1).map(str),
    },
    optional={
        "name": st.text(st.characters(codec="utf-8"), max_size=20),
        "parentSpanId": st.binary(min_size=8, max_size=8).map(bytes.hex),
        "endTimeUnixNano": st.integers(0, 2**64 - 1).map(str),
        "kind": st.integers(0, 5),
        "attributes": st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from(
                        [
                            *("gen_ai.operation.name", "gen_ai.output.messages", "output.value"),
                            *("gen_ai.completion.0.content", "openinference.span.kind", "x"),
                        ]
                    ),
                    "value": VALUES,
                }
            ),
            max_size=4,
        ),
    },
)


@given(spans=st.lists(SPANS, max_size=3))
def test_both_forms_say_the_same(spans: list[dict[str, Any]]) -> None:
    body = request_of(*spans)
    by_json, by_protobuf = read_json(body), read_protobuf(protobuf_of(body))
    assert by_json == by_protobuf
    assert [item.index for item in by_json] == list(range(len(spans)))
    for item in by_json:
        if isinstance(item, Item):
            json.loads(item.body, parse_constant=lambda token: pytest.fail(token))
            assert abs(item.seq) <= 2**62


@given(body=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    for read in (read_json, read_protobuf):
        try:
            items = read(body)
        except ValueError:
            continue
        assert all(isinstance(item, Item | Refused) for item in items)


def test_nothing_that_was_sent_is_dropped() -> None:
    sent = span(
        kind=3,
        traceState="a=b",
        status={"code": 2, "message": "timeout"},
        droppedAttributesCount=4,
        attributes=[{"key": "n", "value": {"doubleValue": "NaN"}}, {"key": "empty", "value": {}}],
        events=[{"name": "retry", "timeUnixNano": "1", "attributes": [text("why", "slow")]}],
        links=[{"traceId": TRACE, "spanId": CHILD}],
    )
    (item,) = read_json(request_of(sent, resource=[text("service.name", "agent")]))
    assert isinstance(item, Item)
    assert json.loads(item.body)["data"] == {
        "trace_id": TRACE,
        "attributes": {"n": {"$number": "NaN"}, "empty": None},
        "events": [
            {
                "name": "retry",
                "at": "1970-01-01T00:00:00.000000001Z",
                "attributes": {"why": "slow"},
            }
        ],
        "span_kind": "client",
        "status": {"code": "error", "message": "timeout"},
        "links": [{"trace_id": TRACE, "span_id": CHILD}],
        "trace_state": "a=b",
        "dropped_by_sender": {"attributes": 4},
        "resource": {"attributes": {"service.name": "agent"}},
        "scope": {"name": "test", "version": "1"},
    }
    assert (stamp(0), stamp(2**64 - 1)) == ("", "2554-07-21T23:34:33.709551615Z")


@pytest.mark.parametrize(
    ("attributes", "kind", "content"),
    [
        (
            {
                "gen_ai.operation.name": "chat",
                "gen_ai.output.messages": [
                    {"role": "assistant", "parts": [{"type": "text", "content": "hi"}]}
                ],
            },
            "model_call",
            "hi",
        ),
        ({"gen_ai.system": "openai", "gen_ai.request.model": "m"}, "model_call", None),
        (
            {"llm.request.type": "chat", "gen_ai.completion.0.content": "older"},
            "model_call",
            "older",
        ),
        (
            {
                "openinference.span.kind": "LLM",
                "llm.output_messages.0.message.role": "assistant",
                "llm.output_messages.0.message.content": "phoenix",
            },
            "model_call",
            "phoenix",
        ),
        (
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.call.arguments": '{"path": "/"}',
                "gen_ai.tool.call.result": "a b",
            },
            "tool_call",
            {"arguments": {"path": "/"}, "result": "a b"},
        ),
        ({"openinference.span.kind": "RETRIEVER", "output.value": "[1"}, "retrieval", "[1"),
        ({"traceloop.span.kind": "workflow", "traceloop.entity.output": "x"}, "chain", "x"),
        ({"mlflow.spanType": '"CHAT_MODEL"', "mlflow.spanOutputs": '"x"'}, "model_call", '"x"'),
        ({"http.method": "GET"}, "span", None),
        ({"gen_ai.operation.name": 5, "gen_ai.usage.input_tokens": "x"}, "span", None),
    ],
)
def test_conventions(attributes: dict[str, Any], kind: str, content: Any) -> None:
    said = said_by("step", attributes)
    assert (said.kind, said.content) == (kind, content)


def test_messages_told_by_events_inside_a_span() -> None:
    chat = {"gen_ai.system": "openai", "gen_ai.request.model": "m"}
    choice = ("gen_ai.choice", {"index": 0, "message": '{"role": "assistant", "content": "yes"}'})
    assert said_by("chat", chat, [choice]).content == "yes"
    older = ("gen_ai.content.completion", {"gen_ai.completion": '[{"content": "no"}]'})
    assert said_by("chat", chat, [older]).content == "no"
    called = {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]}
    assert said_by("chat", {**chat, "output.value": json.dumps(called)}).content == called
