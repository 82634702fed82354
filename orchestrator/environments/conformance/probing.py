"""Valid actions without an agent, made from an action schema. Pure.

The generator knows the part of JSON schema that pydantic writes (types, required, enum, const,
anyOf, oneOf, $ref, lengths and bounds). What it makes is validated; what cannot be made is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable

Action = dict[str, Any]
LIST_TOOLS: Action = {"type": "list_tools"}
_DEPTH = 6
_FILLER = "x"


@dataclass(frozen=True)
class ActionMaker:
    """Actions of one server. `schema` None: nothing is known, only the kind can make actions."""

    schema: Mapping[str, Any] | None
    tools: Sequence[Mapping[str, Any]] = ()
    """Of an MCP environment: `name` and `input_schema`, as `list_tools` answers."""

    @property
    def calls_tools(self) -> bool:
        return "tool_name" in _properties(self.schema)

    def minimal(self) -> Action | None:
        """A valid action that says as little as possible."""
        return next(self.with_text(None), None)

    def with_text(self, text: str | None) -> Iterator[Action]:
        """Each way to put the text into a valid action: one per text field and alternative.

        None: leave every text at its shortest.
        """
        if self.calls_tools:
            for tool in self.tools:
                for arguments in _instances(tool.get("input_schema") or {}, text):
                    yield {
                        "type": "call_tool",
                        "tool_name": tool["name"],
                        "arguments": arguments,
                    }
        elif self.schema is not None:
            yield from _instances(self.schema, text)

    def with_number(self, value: float) -> Iterator[Action]:
        """Each way to put the number into a valid action."""
        root = self.schema or {}
        for name, part in _properties(root).items():
            if _resolved(part, root).get("type") in ("integer", "number"):
                action = self.filled(**{name: value})
                if action is not None:
                    yield action

    def text_fields(self) -> list[str]:
        """Names of the action's own text fields."""
        root = self.schema or {}
        return [name for name, part in _properties(root).items() if _is_text(part, root)]

    def filled(self, **values: Any) -> Action | None:
        """A valid action with these fields set; None where the schema does not take them."""
        for base in [*self.with_text(None), {}]:
            if _is_valid({**base, **values}, self.schema or {}):
                return {**base, **values}
        return None


def _instances(schema: Mapping[str, Any], text: str | None) -> Iterator[Action]:
    properties = _properties(schema)
    named = [n for n, part in properties.items() if n != "metadata" and _is_text(part, schema)]
    seen: list[Action] = []
    for required in _alternatives(schema):
        base = {
            name: _least(properties.get(name, {}), schema, _DEPTH)
            for name in dict.fromkeys([*schema.get("required", ()), *required])
        }
        wanted: list[Action] = [base]
        if text is not None:
            wanted = [
                {**base, name: text}
                for name in named
                if not required or name in required or name in base
            ] or [base]
            if len(wanted) > 1:
                # A server may want them all at once.
                wanted.append({**base, **dict.fromkeys(named, text)})
        for candidate in wanted:
            if candidate not in seen and _is_valid(candidate, schema):
                seen.append(candidate)
                yield candidate


def _alternatives(schema: Mapping[str, Any]) -> list[list[str]]:
    """Required fields of each alternative: pydantic models may publish `oneOf: [{required}]`."""
    parts = [*schema.get("oneOf", ()), *schema.get("anyOf", ())]
    found = [list(p["required"]) for p in parts if isinstance(p, Mapping) and "required" in p]
    return found or [[]]


def _properties(schema: Mapping[str, Any] | None) -> Mapping[str, Any]:
    found = (schema or {}).get("properties", {})
    return found if isinstance(found, Mapping) else {}


def _resolved(part: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = part.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        found: Any = root
        for name in reference[2:].split("/"):
            found = found.get(name, {}) if isinstance(found, Mapping) else {}
        return found if isinstance(found, Mapping) else {}
    return part


def _is_text(part: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    part = _resolved(part, root)
    if "enum" in part or "const" in part:
        return False
    if part.get("type") == "string":
        return True
    return any(
        isinstance(p, Mapping) and p.get("type") == "string" and "enum" not in p
        for p in part.get("anyOf", ())
    )


def _least(part: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    """The smallest value of a part's schema."""
    part = _resolved(part, root)
    if depth == 0:
        return None
    if "const" in part:
        return part["const"]
    if part.get("enum"):
        return part["enum"][0]
    for option in (*part.get("anyOf", ()), *part.get("oneOf", ())):
        if isinstance(option, Mapping):
            return _least(option, root, depth - 1)
    match part.get("type"):
        case "string":
            return _FILLER * int(part.get("minLength", 0))
        case "integer":
            low = part.get("minimum", part.get("exclusiveMinimum", -1) + 1)
            return max(0, int(low)) if "maximum" not in part else int(low)
        case "number":
            return float(part.get("minimum", 0.0))
        case "boolean":
            return False
        case "array":
            item = _least(part.get("items", {}), root, depth - 1)
            return [item] * int(part.get("minItems", 0))
        case "object":
            return {
                name: _least(_properties(part).get(name, {}), root, depth - 1)
                for name in part.get("required", ())
            }
        case _:
            return None


def _is_valid(action: Action, schema: Mapping[str, Any]) -> bool:
    """False for a schema that is none, too: schemas of tools are somebody else's."""
    try:
        Draft202012Validator.check_schema(schema)
        return bool(Draft202012Validator(schema).is_valid(action))
    except (SchemaError, Unresolvable, re.error, RecursionError):
        return False
