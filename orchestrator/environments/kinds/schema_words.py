"""A JSON schema in words, and an example of it: for agents that write actions as text.

Schemas are foreign. What is not understood is left out of the words; nothing here raises.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_DEPTH = 8
_WORDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
    "null": "null",
}
_EXAMPLES: dict[str, Any] = {
    "string": "…",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "null": None,
}


def resolved(schema: Mapping[str, Any], depth: int = MAX_DEPTH) -> dict[str, Any]:
    """With references into its own `$defs` written out, down to `depth`."""
    definitions = schema.get("$defs")
    value = _resolved(schema, definitions if isinstance(definitions, Mapping) else {}, depth)
    found = value if isinstance(value, dict) else {}
    found.pop("$defs", None)
    return found


def _resolved(value: Any, definitions: Mapping[str, Any], depth: int) -> Any:
    if depth <= 0:
        return {} if isinstance(value, Mapping) else value
    if isinstance(value, Mapping):
        reference = value.get("$ref")
        if isinstance(reference, str):
            target = definitions.get(reference.rpartition("/")[2], {})
            rest = {k: v for k, v in value.items() if k != "$ref"}
            return _resolved({**target, **rest}, definitions, depth - 1)
        return {
            k: v if k == "$defs" else _resolved(v, definitions, depth - (k == "properties"))
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [_resolved(item, definitions, depth) for item in value]
    return value


def fields_in_words(schema: Mapping[str, Any]) -> list[str]:
    """One line for each property: name, type, whether it may be left out, what it means."""
    schema = resolved(schema)
    required = schema.get("required") or ()
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return []
    lines = []
    for name, about in properties.items():
        about = about if isinstance(about, Mapping) else {}
        facts = [type_in_words(about)]
        if name not in required:
            default = about.get("default")
            facts.append("optional" if default is None else f"optional, else {default!r:.40}")
        text = " ".join(str(about.get("description") or "").split())
        lines.append(f"{name} ({', '.join(facts)}){f': {text}' if text else ''}")
    return lines


def type_in_words(about: Mapping[str, Any]) -> str:
    if "const" in about:
        return f"always {about['const']!r:.80}"
    if isinstance(options := about.get("enum"), list):
        return "one of " + ", ".join(f"{option!r:.40}" for option in options[:20])
    for key in ("anyOf", "oneOf"):
        if isinstance(choices := about.get(key), list):
            options_words = [type_in_words(c) for c in choices if isinstance(c, Mapping)]
            return " or ".join(w for w in dict.fromkeys(options_words) if w != "null") or "anything"
    found = about.get("type")
    if isinstance(found, list):
        return " or ".join(_WORDS.get(str(t), str(t)) for t in found)
    words = _WORDS.get(str(found), "anything")
    if found == "array" and isinstance(items := about.get("items"), Mapping):
        return f"list of {type_in_words(items)}"
    bounds = [
        f"{word} {about[key]}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"))
        if isinstance(about.get(key), int | float)
    ]
    return " ".join([words, *bounds])


def example_of(schema: Mapping[str, Any]) -> Any:
    """A value of the schema, as far as it is understood; optional fields are left out."""
    return _example(resolved(schema))


def _example(about: Any) -> Any:
    if not isinstance(about, Mapping):
        return "…"
    if "const" in about:
        return about["const"]
    for key in ("examples", "enum"):
        if isinstance(values := about.get(key), list) and values:
            return values[0]
    if about.get("default") is not None:
        return about["default"]
    for key in ("anyOf", "oneOf", "allOf"):
        if isinstance(choices := about.get(key), list) and choices and "properties" not in about:
            return _example(choices[0])
    properties = about.get("properties")
    if isinstance(properties, Mapping):
        chosen = [n for n in about.get("required") or () if n in properties] or list(properties)[:1]
        return {name: _example(properties[name]) for name in chosen}
    found = about.get("type")
    found = found[0] if isinstance(found, list) and found else found
    if found == "array":
        return [_example(about.get("items", {}))]
    if found == "object":
        return {}
    if found in ("integer", "number") and isinstance(about.get("minimum"), int | float):
        return about["minimum"]
    return _EXAMPLES.get(str(found), "…")
