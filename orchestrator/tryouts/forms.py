"""Forms made from a JSON schema, and what a person typed into one as the value that is sent. Pure.

A form has one or several variants: an action that must have exactly one of some fields has one for
each, a union of objects one for each object, a server of tools one for each tool. Everything that
a schema may say beyond the types below becomes a field of JSON text, so no schema is too odd to be
played; and each form has the raw JSON of the whole action beside it (`RAW`).

Names of form fields are `v<variant>.<field>`, since variants may share names.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

FieldType = Literal["text", "integer", "number", "flag", "choice", "json"]

RAW = "raw"
"""The variant, and the form field, that hold the whole value as JSON."""
VARIANT = "variant"
"""The form field that says which variant was filled in."""
_HIDDEN = frozenset({"metadata"})
"""OpenEnv's own field of every action; it can still be set by raw JSON."""
_TYPES: dict[str, FieldType] = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "flag",
}


@dataclass(frozen=True)
class SchemaField:
    name: str
    type: FieldType
    is_required: bool
    help: str = ""
    default: Any = None
    has_default: bool = False
    choices: tuple[Any, ...] = ()
    """JSON values, for `choice`; a form sends the position."""
    what: str = ""
    """Of a `json` field: object, list or any value."""
    is_long: bool = False
    """Text that may have several lines."""

    @property
    def label(self) -> str:
        return self.name.replace("_", " ")

    @property
    def shown_choices(self) -> list[tuple[str, str]]:
        return [
            (str(i), value if isinstance(value, str) else json.dumps(value))
            for i, value in enumerate(self.choices)
        ]

    @property
    def initial(self) -> str:
        """The default as a form shows it."""
        if not self.has_default or self.default is None:
            return ""
        if self.type == "choice":
            return str(self.choices.index(self.default)) if self.default in self.choices else ""
        if self.type == "flag":
            return "on" if self.default else ""
        if self.type == "text":
            return str(self.default)
        return json.dumps(self.default)


@dataclass(frozen=True)
class Variant:
    key: str
    label: str
    fields: tuple[SchemaField, ...]
    constants: Mapping[str, Any]
    """Fields that can have one value only: sent, not asked."""
    help: str = ""
    into: str = ""
    """The field of the action that the form's values go into: a tool's `arguments`."""


@dataclass(frozen=True)
class ActionForm:
    variants: tuple[Variant, ...]
    """Empty: nothing is known of the value, only raw JSON can be sent."""


@dataclass(frozen=True)
class Read:
    """What was typed. Either a value, or what is wrong with which form field."""

    value: Any
    errors: Mapping[str, str]


def action_form(schema: Mapping[str, Any] | None, tools: Sequence[Mapping[str, Any]]) -> ActionForm:
    """The form of an action. `tools`: those of a server whose actions are calls of tools."""
    if tools:
        return ActionForm(tuple(_tool(f"v{i}", tool) for i, tool in enumerate(tools)))
    if not schema:
        return ActionForm(())
    return ActionForm(tuple(_variants(schema)))


def read_action(form: ActionForm, data: Mapping[str, str]) -> Read:
    """The action that was filled in. An empty optional field is left out."""
    chosen = data.get(VARIANT, "")
    if chosen == RAW or not form.variants:
        return read_object(data.get(RAW, ""), RAW)
    variant = next((v for v in form.variants if v.key == chosen), None)
    if variant is None:
        return Read(None, {VARIANT: "choose what to send"})
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for field in variant.fields:
        name = f"{variant.key}.{field.name}"
        try:
            value = _value(field, data.get(name, ""))
        except ValueError as exc:
            errors[name] = str(exc)
            continue
        if value is not _NOTHING:
            values[field.name] = value
        elif field.is_required:
            errors[name] = "is needed"
    if errors:
        return Read(None, errors)
    if variant.into:
        return Read({**variant.constants, variant.into: values}, {})
    return Read({**variant.constants, **values}, {})


def read_object(text: str, name: str) -> Read:
    """A JSON object, as a person typed it."""
    try:
        value = _json(text)
    except ValueError as exc:
        return Read(None, {name: str(exc)})
    if not isinstance(value, dict):
        return Read(None, {name: 'a JSON object is needed, for instance {"name": "value"}'})
    return Read(value, {})


# --- from the schema -----------------------------------------------------------------------------


def _variants(schema: Mapping[str, Any]) -> list[Variant]:
    root = schema
    schema = _resolved(schema, root)
    options = [_resolved(o, root) for o in schema.get("oneOf") or schema.get("anyOf") or []]
    if options and all(set(o) == {"required"} for o in options) and "properties" in schema:
        return _exactly_one(schema, options, root)
    if options and all(isinstance(o.get("properties"), Mapping) for o in options):
        return [_object(f"v{i}", option, root) for i, option in enumerate(options)]
    if isinstance(schema.get("properties"), Mapping):
        return [_object("v0", schema, root)]
    return []


def _exactly_one(
    schema: Mapping[str, Any], options: Sequence[Mapping[str, Any]], root: Mapping[str, Any]
) -> list[Variant]:
    """One variant for each of the alternatives, with what all of them share."""
    names = {name for option in options for name in option["required"]}
    variants = []
    for i, option in enumerate(options):
        own = set(option["required"])
        properties = {
            name: part
            for name, part in schema["properties"].items()
            if name in own or name not in names
        }
        required = [*schema.get("required", []), *own]
        part = {**schema, "properties": properties, "required": required}
        made = _object(f"v{i}", part, root)
        variants.append(replace(made, label=" and ".join(sorted(own)).replace("_", " "), help=""))
    return variants


def _object(key: str, schema: Mapping[str, Any], root: Mapping[str, Any]) -> Variant:
    required = set(schema.get("required") or [])
    fields, constants = [], {}
    for name, raw in schema["properties"].items():
        part = _resolved(raw if isinstance(raw, Mapping) else {}, root)
        if "const" in part:
            constants[name] = part["const"]
        elif name not in _HIDDEN:
            fields.append(_field(name, part, name in required, root))
    title = next((str(v) for v in constants.values()), str(schema.get("title") or "action"))
    return Variant(
        key=key,
        label=title.replace("_", " "),
        fields=tuple(fields),
        constants=constants,
        help=_sentence(schema.get("description")),
    )


def _tool(key: str, tool: Mapping[str, Any]) -> Variant:
    schema = tool.get("input_schema") or tool.get("inputSchema") or {}
    made = Variant(key, "", (), {})
    if isinstance(schema, Mapping) and isinstance(schema.get("properties"), Mapping):
        made = _object(key, schema, schema)
    name = str(tool.get("name", ""))
    return replace(
        made,
        label=name,
        fields=(
            *made.fields,
            *(_constant(name, value) for name, value in made.constants.items()),
        ),
        constants={"type": "call_tool", "tool_name": name},
        help=_sentence(tool.get("description")),
        into="arguments",
    )


def _constant(name: str, value: Any) -> SchemaField:
    return SchemaField(
        name, "choice", is_required=True, default=value, has_default=True, choices=(value,)
    )


def _field(
    name: str, part: Mapping[str, Any], is_required: bool, root: Mapping[str, Any]
) -> SchemaField:
    part = _without_null(part, root)
    choices = part.get("enum")
    declared = part.get("type")
    kind: FieldType = "json"
    if isinstance(choices, list) and choices:
        kind = "choice"
    elif isinstance(declared, str):
        kind = _TYPES.get(declared, "json")
    length = part.get("maxLength")
    return SchemaField(
        name=name,
        type=kind,
        is_required=is_required,
        help=_sentence(part.get("description")),
        default=part.get("default"),
        has_default="default" in part,
        choices=tuple(choices) if kind == "choice" and choices else (),
        what={"object": "object", "array": "list"}.get(str(declared), "value"),
        is_long=kind == "text" and (not isinstance(length, int) or length > 200),
    )


def _without_null(part: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """`X or null`, as pydantic writes an optional field, read as X."""
    options = [_resolved(o, root) for o in part.get("anyOf") or [] if isinstance(o, Mapping)]
    some = [o for o in options if o.get("type") != "null"]
    around = {key: value for key, value in part.items() if key != "anyOf"}
    if len(some) == 1:
        return {**some[0], **around}
    kinds = part.get("type")
    if isinstance(kinds, list):
        some_kinds = [kind for kind in kinds if kind != "null"]
        if len(some_kinds) == 1:
            return {**part, "type": some_kinds[0]}
    return part


def _resolved(part: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """References inside the schema followed; a single `allOf` opened."""
    for _ in range(16):  # a reference to itself ends here
        merged = part.get("allOf")
        if isinstance(merged, list) and len(merged) == 1 and isinstance(merged[0], Mapping):
            part = {**merged[0], **{k: v for k, v in part.items() if k != "allOf"}}
        reference = part.get("$ref")
        if not isinstance(reference, str):
            return part
        target: Any = root
        for name in reference.removeprefix("#/").split("/"):
            target = target.get(name) if isinstance(target, Mapping) else None
        if not isinstance(target, Mapping):
            return {k: v for k, v in part.items() if k != "$ref"}
        part = {**target, **{k: v for k, v in part.items() if k != "$ref"}}
    return {}


def _sentence(text: Any) -> str:
    return " ".join(text.split())[:300] if isinstance(text, str) else ""


# --- from the person -----------------------------------------------------------------------------

_NOTHING = object()
_WHAT_JSON: dict[str, type | tuple[type, ...]] = {"object": dict, "list": list}


def _value(field: SchemaField, text: str) -> Any:
    """`_NOTHING` for an empty field; ValueError says what is wrong."""
    if field.type == "flag":
        return bool(text)
    if field.type == "text":
        # A browser sends line ends as a typewriter does.
        text = text.replace("\r\n", "\n")
        return text if text or (field.is_required and field.default == "") else _NOTHING
    text = text.strip()
    if not text:
        return _NOTHING
    if field.type == "choice":
        if not text.isdecimal() or int(text) >= len(field.choices):
            raise ValueError("choose one of the list")
        return field.choices[int(text)]
    if field.type == "integer":
        try:
            return int(text)
        except ValueError:
            raise ValueError("a whole number is needed") from None
    if field.type == "number":
        return _number(text)
    value = _json(text)
    wanted = _WHAT_JSON.get(field.what)
    if wanted is not None and not isinstance(value, wanted):
        raise ValueError(f"a JSON {field.what} is needed")
    return value


def _number(text: str) -> float | int:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a number is needed") from None
    if not math.isfinite(value):
        raise ValueError("a finite number is needed")
    return int(text) if text.lstrip("+-").isdecimal() else value


def _json(text: str) -> Any:
    def refuse(name: str) -> object:
        raise ValueError(f"{name} is not JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as exc:
        raise ValueError(f"not JSON: {exc.msg} at line {exc.lineno}, place {exc.colno}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None
