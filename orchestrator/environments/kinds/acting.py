"""How an agent acts in one episode: functions to call, or actions written as text.

What a server takes is known when an episode has started: its schema of actions, and for servers of
tools the list of them. An `Interface` is made of that. It offers `tools` to models that call
functions, describes the same in `instructions` for models that write text, and turns either into
an action. What cannot be turned into one becomes `Malformed`, which is refused with its reason and
not sent.

Text forms of a call, for small models and tight windows: `name key=value key="two words"`, or
`name {"key": "value"}`, or one JSON object `{"tool_name": …, "arguments": {…}}`. Values of the
first form take the type that the tool's schema says. Code fences around a reply are dropped.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, runtime_checkable

from orchestrator.environments.actions import Malformed
from orchestrator.environments.episode import Action
from orchestrator.environments.kinds.schema_words import example_of, fields_in_words, resolved

ACT = "act"
"""Name of the one function that is offered for servers whose actions are plain objects."""
MAX_TOOLS = 128
"""What OpenAI's protocol takes in one request."""
_FENCE = re.compile(r"^```\w*[ \t]*\n?|\n?[ \t]*```$")
_CALL = re.compile(r"([A-Za-z_][\w.:-]*)\s*(.*)", re.DOTALL)
_NAME_NOT_TAKEN = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True)
class Tool:
    """A function that an agent may call."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    """JSON schema of its arguments."""

    @classmethod
    def from_listed(cls, entry: Mapping[str, Any]) -> Tool:
        """An entry of an MCP server's list; foreign, so anything may be missing."""
        schema = entry.get("input_schema") or entry.get("inputSchema")
        return cls(
            name=str(entry.get("name", "")),
            description=str(entry.get("description") or ""),
            parameters=schema if isinstance(schema, Mapping) else {"type": "object"},
        )


@dataclass(frozen=True)
class Described:
    """Words of a harness for one tool. What an agent may send is the environment's to say."""

    description: str | None = None
    """None leaves the environment's."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Descriptions by parameter."""

    def on(self, tool: Tool) -> Tool:
        """The tool with these words; parameters that it does not have are passed over."""
        properties = tool.parameters.get("properties")
        told = {
            name: {**about, "description": self.parameters[name]}
            for name, about in (properties.items() if isinstance(properties, Mapping) else ())
            if name in self.parameters and isinstance(about, Mapping)
        }
        return replace(
            tool,
            description=tool.description if self.description is None else self.description,
            parameters={**tool.parameters, "properties": {**properties, **told}}
            if told and isinstance(properties, Mapping)
            else tool.parameters,
        )


class Interface:
    """Text alone, read by the kind. The base of the others."""

    tools: tuple[Tool, ...] = ()
    instructions: str = ""
    """How to write an action as text; empty where the harness's author says it."""

    def __init__(self, kind: ReadsReplies) -> None:
        self._kind = kind

    def read(self, reply: str) -> Action:
        """The action that a text reply means."""
        return self._kind.action_of(reply)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Action:
        """The action that a function call means."""
        return Malformed(name, f"there is no function {name!r:.80}")

    def described(self, texts: Mapping[str, Described]) -> Interface:
        """The same with other descriptions, by tool name, where a harness has its own."""
        return self


class ToolInterface(Interface):
    """A server whose actions are calls of tools (`call_tool`)."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tuple(tools[:MAX_TOOLS])
        # Functions have narrower names than tools of MCP servers.
        self._by_function = {function_name(tool.name): tool for tool in self.tools}
        self.instructions = _calls_in_words(self.tools)

    def read(self, reply: str) -> Action:
        text = unfenced(reply)
        if text.startswith("{"):
            value = json_object(text)
            return value if isinstance(value, Malformed) else self._of_object(value, text)
        line = next((part.strip() for part in text.splitlines() if part.strip()), "")
        if "{" in line:
            # Arguments in JSON may go over several lines.
            line = text[text.index(line) :].strip()
        found = _CALL.fullmatch(line)
        if found is None or (self.tools and self._tool(found[1]) is None):
            known = ", ".join(tool.name for tool in self.tools[:20])
            return Malformed(reply, f"a reply starts with the name of a tool ({known})")
        return self._of_line(found[1], found[2].strip(), reply)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Action:
        tool = self._tool(name)
        return call_tool(tool.name if tool else name, arguments)

    def described(self, texts: Mapping[str, Described]) -> ToolInterface:
        if not any(tool.name in texts for tool in self.tools):
            return self
        return ToolInterface(
            [texts[tool.name].on(tool) if tool.name in texts else tool for tool in self.tools]
        )

    def _tool(self, name: str) -> Tool | None:
        exact = next((tool for tool in self.tools if tool.name == name), None)
        return exact or self._by_function.get(name)

    def _of_object(self, value: dict[str, Any], reply: str) -> Action:
        if value.get("type") == "list_tools" and len(value) == 1:
            return value
        name = next((value[k] for k in ("tool_name", "name", "tool") if k in value), None)
        if not isinstance(name, str):
            return Malformed(reply, "the object has no tool_name")
        given = [value[k] for k in ("arguments", "args", "parameters") if k in value]
        arguments = given[0] if given else {}
        if not isinstance(arguments, dict):
            return Malformed(reply, f"arguments of {name}: not a JSON object")
        return self.call(name, arguments)

    def _of_line(self, name: str, rest: str, reply: str) -> Action:
        tool = self._tool(name) or Tool(name)
        if rest.startswith("(") and rest.endswith(")"):
            rest = rest[1:-1].strip()
        if rest.startswith("{"):
            value = json_object(rest)
            if isinstance(value, Malformed):
                return Malformed(reply, f"arguments of {name}: {value.reason}")
            return call_tool(tool.name, value)
        arguments = _pairs(tool, rest)
        return arguments if isinstance(arguments, Malformed) else call_tool(tool.name, arguments)


class ObjectInterface(Interface):
    """A server whose actions are JSON objects of a schema that nobody here knows."""

    def __init__(self, schema: Mapping[str, Any] | None) -> None:
        self._schema = resolved(schema or {})
        self._fields = {
            name: about
            for name, about in (self._schema.get("properties") or {}).items()
            if name != "metadata"
        }
        required = [n for n in self._schema.get("required", ()) if n in self._fields]
        if self._fields:
            parameters = {
                **{k: v for k, v in self._schema.items() if k not in ("title", "description")},
                "properties": self._fields,
                "required": required,
            }
            description = str(self._schema.get("description") or "Act in the environment.")
            self.tools = (Tool(ACT, description, parameters),)
        self.instructions = _object_in_words(self._schema, self._fields)

    def read(self, reply: str) -> Action:
        text = unfenced(reply)
        value = json_object(text)
        if not isinstance(value, Malformed):
            return value
        if len(self._fields) == 1 and not text.startswith(("{", "[")):
            # With one field there is nothing to tell apart.
            ((name, about),) = self._fields.items()
            if (scalar := _typed(text, about)) is not None:
                return {name: scalar}
        return Malformed(reply, value.reason)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Action:
        return dict(arguments) if name == ACT else super().call(name, arguments)

    def described(self, texts: Mapping[str, Described]) -> ObjectInterface:
        if ACT not in texts or not self.tools:
            return self
        (tool,) = self.tools
        told = texts[ACT].on(tool)
        properties = {**self._schema["properties"], **told.parameters["properties"]}
        return ObjectInterface(
            {**self._schema, "description": told.description, "properties": properties}
        )


class ReadsReplies(Protocol):
    """What the plain interface needs of a kind."""

    def action_of(self, reply: str) -> Action:
        """An agent's reply as an action."""


@runtime_checkable
class MakesInterface(Protocol):
    """A kind that says how its agents act; the others have text alone."""

    def interface(
        self, schema: Mapping[str, Any] | None, listed: Sequence[Mapping[str, Any]]
    ) -> Interface:
        """From the server's schema of actions and, for servers of tools, their list."""


def interface_of(
    kind: ReadsReplies, schema: Mapping[str, Any] | None, listed: Sequence[Mapping[str, Any]] = ()
) -> Interface:
    """How an agent acts in an episode of `kind` that has started."""
    return kind.interface(schema, listed) if isinstance(kind, MakesInterface) else Interface(kind)


def call_tool(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """OpenEnv's action for a call of a tool."""
    return {"type": "call_tool", "tool_name": name, "arguments": dict(arguments)}


def function_name(name: str) -> str:
    """A tool's name as a function's: letters, digits, `_`, `-`, at most 64."""
    return _NAME_NOT_TAKEN.sub("_", name)[:64] or "tool"


def unfenced(reply: str) -> str:
    """The reply without a code fence around it; a fence after some words counts too."""
    text = reply.strip()
    if not text.startswith("```") and (found := re.search(r"```\w*\n(.*?)```", text, re.DOTALL)):
        return found[1].strip()
    return _FENCE.sub("", text).strip()


def json_object(text: str) -> dict[str, Any] | Malformed:
    """A JSON object, or the text with the reason why it is none."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        return Malformed(text, "not a JSON object (nested too deeply)")
    except ValueError as exc:
        return Malformed(text, f"not a JSON object ({exc})")
    return value if isinstance(value, dict) else Malformed(text, "not a JSON object")


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _pairs(tool: Tool, text: str) -> dict[str, Any] | Malformed:
    """`key=value` pairs; a single value without a key for a tool that takes one."""
    fields = resolved(tool.parameters).get("properties") or {}
    try:
        parts = shlex.split(text)
    except ValueError as exc:
        return Malformed(f"{tool.name} {text}", f"arguments of {tool.name}: {exc}")
    if parts and len(fields) == 1 and not parts[0].startswith(f"{next(iter(fields))}="):
        # All the rest is the value, quotes included where they are not around it.
        value = parts[0] if len(parts) == 1 else text
        name, about = next(iter(fields.items()))
        typed = _typed(value, about)
        return {name: value if typed is None else typed}
    arguments: dict[str, Any] = {}
    for part in parts:
        key, equals, value = part.partition("=")
        if not equals:
            return Malformed(
                f"{tool.name} {text}", f"arguments of {tool.name}: {part!r:.80} is not key=value"
            )
        typed = _typed(value, fields.get(key, {}))
        arguments[key] = value if typed is None else typed
    return arguments


def _typed(text: str, about: Any) -> Any:
    """Text as the schema's type says; None if it is none of it."""
    types = _types(about)
    if "string" in types:
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text if not types else None
    names = {
        bool: "boolean", int: "integer", float: "number", str: "string", list: "array",
        dict: "object", type(None): "null",
    }  # fmt: skip
    name = names[type(value)]
    fits = not types or name in types or (name == "integer" and "number" in types)
    return value if fits else None


def _types(about: Any) -> set[str]:
    if not isinstance(about, Mapping):
        return set()
    found = about.get("type")
    types = {found} if isinstance(found, str) else set(found or ())
    for key in ("anyOf", "oneOf"):
        for option in about.get(key) or ():
            types |= _types(option)
    if not types and (options := about.get("enum")):
        types = {"string"} if all(isinstance(o, str) for o in options) else set()
    return types


def _calls_in_words(tools: Sequence[Tool]) -> str:
    if not tools:
        return (
            "Act by calling one tool in each reply, as a JSON object: "
            '{"tool_name": "NAME", "arguments": {}}'
        )
    lines = ["Act by calling one tool in each reply: its name, then its arguments. Tools:"]
    for tool in tools:
        about = " ".join(tool.description.split())
        lines.append(f"- {tool.name}{f': {about}' if about else ''}")
        lines += [f"  {line}" for line in fields_in_words(tool.parameters)]
    first = next((t for t in tools if resolved(t.parameters).get("properties")), tools[0])
    example = json.dumps(example_of(first.parameters), ensure_ascii=False)
    lines.append(f"Reply for instance: {first.name} {example}")
    return "\n".join(lines)


def _object_in_words(schema: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    if not fields:
        described = "" if not schema else f" of this schema: {json.dumps(schema)[:4000]}"
        return f"Each reply is one JSON object, the action{described}"
    lines = ["Each reply is one JSON object, the action, and nothing else. Its fields:"]
    lines += [f"- {line}" for line in fields_in_words({**schema, "properties": fields})]
    example = example_of({**schema, "properties": fields})
    lines.append(f"Reply for instance: {json.dumps(example, ensure_ascii=False)}")
    return "\n".join(lines)
