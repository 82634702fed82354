"""The OpenAPI document as a page reads it: groups of operations, and fields as rows. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DEEPEST = 3
"""Levels of fields that are spelled out."""
TITLES = {
    "projects": "Projects and members",
    "tokens": "API tokens",
    "team": "Invitations, limits and audit log",
    "caps": "Limits of judges and devices",
    "saved_views": "Saved views",
    "environments": "Environments",
    "registrations": "Sources of environments",
    "checks": "Checks of environments",
    "drafts": "Drafts of environments",
    "draft_tasks": "Tasks of a draft",
    "draft_uploads": "Files of tasks",
    "tryouts": "Try-outs",
    "rubrics": "Rubrics",
    "regrades": "Re-grades and back-tests",
    "previews": "Trying a rubric",
    "golden": "Golden cases",
    "redteams": "Attacks on rubrics",
    "calibration": "Calibration",
    "alignments": "Better questions for judges",
    "suggestions": "Suggested criteria",
    "harnesses": "Harnesses",
    "releases": "Releases",
    "endpoints": "Models",
    "runs": "Runs",
    "rollouts": "Rollouts",
    "comparison": "Comparison",
    "searches": "Searches",
    "proposals": "Proposals",
    "climbs": "Climbs",
    "trainings": "Trainings",
    "sweeps": "Sweeps of λ",
    "alarms": "Alarms",
    "review": "Review",
    "review_items": "Items of review",
    "looks": "Tokens as a checkpoint sees them",
    "gates": "Gates",
    "traces": "Traces from outside",
    "otlp": "Spans of OpenTelemetry",
    "search": "Full-text search",
    "archives": "Archives of projects",
    "retention": "Retention",
    "webhooks": "Webhooks",
}


@dataclass(frozen=True)
class Row:
    name: str
    kind: str
    is_required: bool
    text: str
    depth: int


@dataclass(frozen=True)
class Answer:
    status: str
    text: str
    is_error: bool


@dataclass(frozen=True)
class Operation:
    id: str
    method: str
    path: str
    summary: str
    parameters: tuple[Row, ...]
    body: tuple[Row, ...]
    answer: tuple[Row, ...]
    answers: tuple[Answer, ...]
    example: str
    """A command for a shell."""


@dataclass(frozen=True)
class Group:
    key: str
    title: str
    operations: tuple[Operation, ...]


def groups_of(document: Mapping[str, Any], base_url: str) -> list[Group]:
    found: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method, said in methods.items():
            operation = _operation(document, base_url, path, method, said)
            found.setdefault(said["tags"][0], []).append(operation)
    known = [tag for tag in TITLES if tag in found]
    others = sorted(found.keys() - TITLES.keys())
    return [
        Group(tag, TITLES.get(tag, tag.capitalize()), tuple(found[tag])) for tag in known + others
    ]


def rows_of(document: Mapping[str, Any], schema: Mapping[str, Any], depth: int = 0) -> list[Row]:
    """The fields of an object and, below them, those of what they hold."""
    return list(_rows(document, schema, depth))


def _rows(document: Mapping[str, Any], schema: Mapping[str, Any], depth: int) -> Iterator[Row]:
    schema = _resolved(document, schema)
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        yield Row(name, kind_of(document, field), name in required, text_of(field), depth)
        inner = _inner(document, field)
        if inner is not None and depth + 1 < DEEPEST:
            yield from _rows(document, inner, depth + 1)


def _inner(document: Mapping[str, Any], field: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The object that a field is, or holds a list of."""
    field = _resolved(document, field)
    if field.get("type") == "array":
        field = _resolved(document, field.get("items", {}))
    for choice in field.get("anyOf", ()):
        if (inner := _inner(document, choice)) is not None:
            return inner
    return field if "properties" in field else None


def _resolved(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    if len(schema.get("allOf", ())) == 1:
        schema = {**schema["allOf"][0], **{k: v for k, v in schema.items() if k != "allOf"}}
    if "$ref" not in schema:
        return schema
    name = schema["$ref"].rpartition("/")[2]
    return {**document["components"]["schemas"][name], **schema}


def kind_of(document: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """In words: `integer or null`, `list of Rollout`, one of a few values."""
    if "$ref" in schema and "enum" not in _resolved(document, schema):
        return str(schema["$ref"].rpartition("/")[2])
    schema = _resolved(document, schema)
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(kind_of(document, choice) for choice in schema["anyOf"])
    kind = schema.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array":
        return f"list of {kind_of(document, schema.get('items', {}))}"
    return {"date-time": "time"}.get(schema.get("format", ""), str(kind))


def text_of(schema: Mapping[str, Any]) -> str:
    parts = [str(schema.get("description", ""))]
    if "default" in schema and schema["default"] not in ("", {}, []):
        parts.append(f"Default {json.dumps(schema['default'])}.")
    if "minimum" in schema and "maximum" in schema and schema["maximum"] < 10**9:
        parts.append(f"{schema['minimum']} to {schema['maximum']:,}.")
    return " ".join(filter(None, parts))


def _operation(
    document: Mapping[str, Any], base_url: str, path: str, method: str, said: Mapping[str, Any]
) -> Operation:
    parameters = tuple(
        Row(
            each["name"],
            f"{kind_of(document, each['schema'])}, in the {_place(each['in'])}",
            each.get("required", False),
            text_of({**each["schema"], "description": each.get("description", "")}),
            0,
        )
        for each in said.get("parameters", ())
        if each["in"] != "path"
    )
    body = _content(said.get("requestBody", {}))
    first = next(iter(status for status in said["responses"] if status < "300"), "")
    answers = [
        Answer(status, str(each.get("description", "")), status >= "400")
        for status, each in sorted(said["responses"].items())
    ]
    return Operation(
        id=said["operationId"],
        method=method.upper(),
        path=path,
        summary=said.get("description", ""),
        parameters=parameters,
        body=tuple(rows_of(document, body)) if body else (),
        answer=tuple(rows_of(document, _content(said["responses"].get(first, {})))),
        answers=tuple(answers),
        example=_example(document, base_url, path, method, said, body),
    )


def _place(place: str) -> str:
    return {"query": "address", "header": "headers"}.get(place, place)


def _content(holder: Mapping[str, Any]) -> Mapping[str, Any]:
    for content in holder.get("content", {}).values():
        schema: Mapping[str, Any] = content.get("schema", {})
        return schema
    return {}


def _example(
    document: Mapping[str, Any],
    base_url: str,
    path: str,
    method: str,
    said: Mapping[str, Any],
    body: Mapping[str, Any],
) -> str:
    words = ['curl -H "Authorization: Bearer $TOKEN"']
    if method != "get":
        words.append(f"-X {method.upper()}")
    names = {each["name"] for each in said.get("parameters", ()) if each["in"] == "header"}
    if "Idempotency-Key" in names:
        words.append("-H 'Idempotency-Key: 7f3a…'")
    if "If-Match" in names:
        words.append("""-H 'If-Match: "…"'""")
    if body:
        schema = _resolved(document, body)
        sample = {
            name: _sample(document, schema["properties"][name])
            for name in schema.get("required", ())
        }
        words.append(
            f"-H 'Content-Type: application/json' -d '{json.dumps(sample, ensure_ascii=False)}'"
        )
    words.append(f"'{base_url}{path}'")
    return " ".join(words)


def _sample(document: Mapping[str, Any], schema: Mapping[str, Any]) -> Any:
    schema = _resolved(document, schema)
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "array":
        return [_sample(document, schema.get("items", {}))]
    samples = {"integer": 1, "number": 0.5, "boolean": True, "object": {}}
    return samples.get(str(kind), "…")
