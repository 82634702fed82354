"""Spans of OpenTelemetry (OTLP/HTTP, protobuf or JSON) as events from outside. Pure.

A trace is a rollout, named by its trace id, or by the resource attribute `switchback.rollout`; a
span is an event under its span id, shown at its start, so that spans may come in any order and over
many requests, parents last. Nothing that was sent is dropped: attributes, inner events, links,
status, resource and scope are the event's data. Specification: opentelemetry-proto 1.x,
`collector/trace/v1/trace_service.proto`; in JSON ids are hexadecimal and 64-bit numbers may be text
(https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from orchestrator.traces.conventions import said_by
from orchestrator.traces.exact import Number
from orchestrator.traces.reading import ITEM_BYTES, Item, Refused

ROLLOUT = "switchback.rollout"
"""Attribute of a resource: the name of the rollout that its spans belong to."""
_KINDS = {2: "server", 3: "client", 4: "producer", 5: "consumer"}
_NS = 1_000_000_000
_LAST_S = 253_402_300_799
"""The end of the year 9999."""
Event = dict[str, Any]


def read_protobuf(body: bytes) -> list[Item | Refused]:
    """Raises ValueError for what is no request at all."""
    request = ExportTraceServiceRequest()
    try:
        request.ParseFromString(body)
    except (DecodeError, RecursionError) as error:
        raise ValueError("is no ExportTraceServiceRequest in protobuf") from error
    items: list[Item | Refused] = []
    for group in request.resource_spans:
        resource = _resource(group.resource)
        for scoped in group.scope_spans:
            scope = _scope(scoped.scope)
            items += [
                _item(len(items) + place, span, resource, scope)
                for place, span in enumerate(scoped.spans)
            ]
    return items


def read_json(body: bytes) -> list[Item | Refused]:
    """A span that cannot be read spoils no other. Raises ValueError as `read_protobuf` does."""
    try:
        value = json.loads(body)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    items: list[Item | Refused] = []
    for group in _listed(value, "resourceSpans", "resource_spans"):
        resource = _resource(_made(Resource, group.get("resource") or {}))
        for scoped in _listed(group, "scopeSpans", "scope_spans"):
            scope = _scope(_made(InstrumentationScope, scoped.get("scope") or {}))
            for told in _listed(scoped, "spans"):
                items.append(_from_json(len(items), told, resource, scope))
    return items


def _listed(value: Any, *names: str) -> list[dict[str, Any]]:
    if not isinstance(value, dict):
        raise ValueError("is no ExportTraceServiceRequest: accepts an object with resourceSpans")
    found = next((value[name] for name in names if name in value), None) or []
    if not isinstance(found, list):
        raise ValueError(f"{names[0]}: accepts a list")
    if names[0] != "spans" and not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{names[0]}: accepts a list of objects")
    return found


def _made(kind: Any, value: Any) -> Any:
    try:
        return ParseDict(value, kind(), ignore_unknown_fields=True)
    except (ParseError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(str(error)[:300]) from error


def _from_json(
    index: int, told: Any, resource: Mapping[str, Any], scope: Mapping[str, Any]
) -> Item | Refused:
    try:
        span = _made(Span, _with_bytes(told))
    except ValueError as error:
        body = json.dumps(told)[:2_000]
        return Refused(index, "bad_span", str(error)[:300], body=body)
    return _item(index, span, resource, scope)


def _with_bytes(span: Any) -> Any:
    """Ids are hexadecimal here, where protobuf's own JSON has base64. Raises ValueError."""
    if not isinstance(span, dict):
        raise ValueError("accepts an object")
    made = {key: _hex(key, value) for key, value in span.items()}
    if isinstance(links := made.get("links"), list):
        made["links"] = [
            {key: _hex(key, value) for key, value in link.items()}
            if isinstance(link, dict)
            else link
            for link in links
        ]
    return made


_IDS = frozenset({"traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id"})


def _hex(key: str, value: Any) -> Any:
    if key not in _IDS or value is None:
        return value
    if not isinstance(value, str):
        raise ValueError(f"{key}: accepts hexadecimal digits")
    try:
        return base64.b64encode(bytes.fromhex(value)).decode()
    except ValueError as error:
        raise ValueError(f"{key}: accepts hexadecimal digits") from error


# One span


def _item(
    index: int, span: Span, resource: Mapping[str, Any], scope: Mapping[str, Any]
) -> Item | Refused:
    trace_id, span_id = span.trace_id.hex(), span.span_id.hex()
    if len(trace_id) != 32 or not trace_id.strip("0"):
        return Refused(index, "missing_field", "trace_id: accepts 16 bytes, not all zero")
    if len(span_id) != 16 or not span_id.strip("0"):
        return Refused(index, "missing_field", "span_id: accepts 8 bytes, not all zero")
    if (size := span.ByteSize()) > ITEM_BYTES:
        text = f"the span takes {size:,} bytes; at most {ITEM_BYTES:,} are taken"
        return Refused(index, "too_large", text, span_id)
    attributes = _attributes(span.attributes)
    inner = [(event.name, _attributes(event.attributes), event) for event in span.events]
    said = said_by(span.name, attributes, [(name, told) for name, told, _ in inner])
    started_ns, ended_ns = span.start_time_unix_nano, span.end_time_unix_nano
    event: Event = {
        "rollout": str(resource.get("attributes", {}).get(ROLLOUT) or trace_id),
        "id": span_id,
        "seq": min(started_ns, 2**62),
        "kind": said.kind,
        "name": said.name,
    }
    if span.parent_span_id:
        event["parent"] = span.parent_span_id.hex()
    if started := stamp(started_ns):
        event["started_at"] = started
    if ended := stamp(ended_ns):
        event["ended_at"] = ended
    if said.content is not None:
        event["content"] = said.content
    data: dict[str, Any] = {"trace_id": trace_id}
    if span.name != said.name:
        data["span_name"] = span.name
    if attributes:
        data["attributes"] = attributes
    if inner:
        data["events"] = [
            _kept({"name": name, "at": stamp(event.time_unix_nano), "attributes": told})
            for name, told, event in inner
        ]
    data |= _rest(span)
    if resource:
        data["resource"] = resource
    if scope:
        data["scope"] = scope
    event["data"] = data
    try:
        body = json.dumps(event, allow_nan=False)
    except ValueError:
        event = _finite(event)
        body = json.dumps(event)
    return Item(index, {**event, "seq": Number(str(event["seq"]))}, body, said.tokens)


def _rest(span: Span) -> dict[str, Any]:
    """What few spans have."""
    found: dict[str, Any] = {}
    if look := _KINDS.get(span.kind):
        found["span_kind"] = look
    code = span.status.code
    if code or span.status.message:
        state = {Status.STATUS_CODE_OK: "ok", Status.STATUS_CODE_ERROR: "error"}
        found["status"] = _kept({"code": state.get(code, ""), "message": span.status.message})
    if span.links:
        found["links"] = [
            _kept(
                {
                    "trace_id": link.trace_id.hex(),
                    "span_id": link.span_id.hex(),
                    "attributes": _attributes(link.attributes),
                }
            )
            for link in span.links
        ]
    if span.trace_state:
        found["trace_state"] = span.trace_state
    dropped = {
        "attributes": span.dropped_attributes_count,
        "events": span.dropped_events_count,
        "links": span.dropped_links_count,
    }
    if any(dropped.values()):
        found["dropped_by_sender"] = _kept(dropped)
    return found


def stamp(ns: int) -> str:
    """An instant in UTC with all nine digits; empty for 0, which says unknown."""
    seconds, rest = divmod(ns, _NS)
    if not ns or seconds > _LAST_S:
        return ""
    # As text by hand: `datetime` has no nanoseconds, and spans come by the thousand.
    days, of_day = divmod(seconds, 86_400)
    hours, of_hour = divmod(of_day, 3_600)
    minutes, second = divmod(of_hour, 60)
    return f"{_date(days)}T{hours:02}:{minutes:02}:{second:02}.{rest:09}Z"


_dates: dict[int, str] = {}


def _date(days: int) -> str:
    found = _dates.get(days)
    if found is None:
        found = date.fromordinal(719_163 + days).isoformat()
        if len(_dates) > 1_000:
            _dates.clear()
        _dates[days] = found
    return found


def _resource(resource: Resource) -> dict[str, Any]:
    attributes = _attributes(resource.attributes)
    return {"attributes": attributes} if attributes else {}


def _scope(scope: InstrumentationScope) -> dict[str, Any]:
    return _kept(
        {
            "name": scope.name,
            "version": scope.version,
            "attributes": _attributes(scope.attributes),
        }
    )


def _kept(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


def _attributes(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    which = value.WhichOneof("value")
    if which is None:
        return None
    if which == "string_value":
        return value.string_value
    if which == "bytes_value":
        return base64.b64encode(value.bytes_value).decode()
    if which == "array_value":
        return [_value(one) for one in value.array_value.values]
    if which == "kvlist_value":
        return {pair.key: _value(pair.value) for pair in value.kvlist_value.values}
    return getattr(value, which)


def _finite(value: Any) -> Any:
    """Numbers that are not finite in the form that strict readers accept: see `exact`."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$number": {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")}
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return value
