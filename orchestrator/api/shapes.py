"""What the API answers, written once: a TypedDict that mypy checks and the schema is made of.

    class RunAnswer(TypedDict):
        id: int
        score: Annotated[float | None, "Mean of the scored rollouts."]

`schema_of(RunAnswer)` is a reference into the OpenAPI document; `add_shapes`, a hook of
drf-spectacular, puts what was referred to below its components. Serializers of DRF would say the
same and cost a call for every field of every row of a list.
"""

from __future__ import annotations

import datetime
import types
import typing
from typing import Annotated, Any, Literal, TypedDict, Union

_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    dict: {"type": "object", "additionalProperties": True},
    list: {"type": "array", "items": {}},
    type(None): {"type": "null"},
    datetime.datetime: {"type": "string", "format": "date-time"},
    Any: {},
    object: {},
}
_asked: dict[str, Any] = {}
"""Shapes by the name of their component."""


class Reason(TypedDict):
    """One thing that is wrong with a request."""

    field: Annotated[str, "What it is about, empty for the request as a whole."]
    message: Annotated[str, "What is wrong with it and what would be right."]


class Problem(TypedDict):
    """Every error: RFC 9457, `application/problem+json`."""

    type: str
    title: Annotated[str, "The status in words."]
    status: int
    detail: Annotated[str, "What is wrong and what to do about it."]
    errors: Annotated[list[Reason], "Fields and reasons one by one; empty where `detail` is all."]
    request_id: Annotated[str, "As in `X-Request-ID`: names the request in the server's logs."]


def schema_of(annotation: Any) -> dict[str, Any]:
    """The JSON schema of an annotation. Raises TypeError for one that has none."""
    if typing.is_typeddict(annotation):
        name = annotation.__name__.removesuffix("Answer")
        known = _asked.setdefault(name, annotation)
        if known is not annotation:
            raise TypeError(f"{known!r} and {annotation!r} are both called {name}.")
        return {"$ref": f"#/components/schemas/{name}"}
    if annotation in _PLAIN:
        return dict(_PLAIN[annotation])
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return {**schema_of(args[0]), "description": args[1]}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(arg) for arg in args]}
    if origin is Literal:
        return {"enum": list(args)}
    if origin is list:
        return {"type": "array", "items": schema_of(args[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": schema_of(args[1])}
    raise TypeError(f"{annotation!r} has no JSON schema.")


def page_of(item: Any) -> dict[str, Any]:
    """The schema of one page of a list: see `paging`."""
    name = f"PageOf{item.__name__.removesuffix('Answer')}"
    fields = {
        "items": list[item],
        "next": Annotated[str | None, "Address of the next page; null on the last one."],
        "cursor": Annotated[str | None, "The same as a value of the parameter `cursor`."],
        "html_url": Annotated[str, "The page of the same list for people."],
    }
    if name not in _asked:
        made = TypedDict(name, fields)  # type: ignore[misc] # made of the item's own name
        made.__doc__ = "One page of a list."
        _asked[name] = made
    return {"$ref": f"#/components/schemas/{name}"}


def add_shapes(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Hook of drf-spectacular: the components that `schema_of` and `page_of` referred to."""
    schemas = result.setdefault("components", {}).setdefault("schemas", {})
    done: set[str] = set()
    while open_names := _asked.keys() - done:
        for name in sorted(open_names):
            done.add(name)
            if name in schemas:
                raise TypeError(f"A serializer and a shape are both called {name}.")
            schemas[name] = _component(_asked[name])
    result["components"]["schemas"] = dict(sorted(schemas.items()))
    return result


def _component(shape: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(shape, include_extras=True)
    return {
        "type": "object",
        "description": (shape.__doc__ or "").strip(),
        "properties": {name: schema_of(hint) for name, hint in hints.items()},
        "required": sorted(shape.__required_keys__),
        "additionalProperties": False,
    }
