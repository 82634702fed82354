"""From what a model said to actions, and how the record names them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from optimizer.harness import Harness
from orchestrator.agents.types import Completion, Function, FunctionCall
from orchestrator.environments.actions import Malformed
from orchestrator.environments.episode import Action
from orchestrator.environments.kinds.acting import (
    Described,
    Interface,
    function_name,
    json_object,
)

ENDING_TOOLS = frozenset({"submit", "finish"})
"""Calls that hand in an answer."""


@dataclass(frozen=True)
class Said:
    """An action with the words that meant it."""

    action: Action
    text: str
    completion: Completion | None
    """Of the turn, with its first action alone."""


def said_in(completion: Completion, interface: Interface) -> list[Said]:
    """One action of a text, or one for each function call. Never empty."""
    if not completion.calls:
        return [Said(interface.read(completion.text), completion.text, completion)]
    before = f"{completion.text}\n" if completion.text else ""
    return [
        Said(
            _called(call, interface),
            f"{before if number == 0 else ''}{call.name} {call.arguments}",
            completion if number == 0 else None,
        )
        for number, call in enumerate(completion.calls)
    ]


def _called(call: FunctionCall, interface: Interface) -> Action:
    arguments = json_object(call.arguments.strip() or "{}")
    if isinstance(arguments, Malformed):
        text = f"{call.name} {call.arguments}"
        return Malformed(text, f"arguments of {call.name}: {arguments.reason}")
    return interface.call(call.name, arguments)


def functions_of(interface: Interface) -> list[Function]:
    """Tools as models may be offered them. Two tools whose names become one: the first counts."""
    found: dict[str, Function] = {}
    for tool in interface.tools:
        name = function_name(tool.name)
        found.setdefault(name, Function(name, tool.description, tool.parameters))
    return list(found.values())


def words_of(harness: Harness) -> dict[str, Described]:
    """What its tools.json says of tools and their parameters, by tool: descriptions alone."""
    return {
        tool["name"]: Described(tool.get("description"), _parameter_words(tool.get("parameters")))
        for tool in harness.tools
    }


def _parameter_words(parameters: Any) -> dict[str, str]:
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    return {
        name: about["description"]
        for name, about in (properties.items() if isinstance(properties, Mapping) else ())
        if isinstance(about, Mapping) and isinstance(about.get("description"), str)
    }


def text_in(action: Action, name: str) -> str | None:
    """A text of an action. What an agent tells a database is its command."""
    if not isinstance(action, Mapping):
        return None
    value = action.get("sql", action.get(name)) if name == "command" else action.get(name)
    return value if isinstance(value, str) else None


def answer_in(action: Action) -> str | None:
    """The final answer: a field of its own, or what a tool that ends the episode was given."""
    if text_in(action, "tool_name") not in ENDING_TOOLS or not isinstance(action, Mapping):
        return text_in(action, "answer")
    arguments = action.get("arguments")
    if not isinstance(arguments, Mapping) or not arguments:
        return None
    answer = arguments.get("answer", dict(arguments))
    return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


def expected_in(spec: Mapping[str, Any]) -> str | None:
    """The author's answer as criteria compare it, in the form of `answer_in`."""
    answer = spec.get("answer")
    if answer is None or isinstance(answer, str):
        return answer
    return json.dumps(answer, ensure_ascii=False)


def form_of(action: Action) -> str:
    """How pages name an action: command, answer, call of a tool, or text for everything else."""
    if text_in(action, "tool_name") is not None:
        return "call"
    if text_in(action, "sql") is not None:
        return "text"
    return next((name for name in ("command", "answer") if text_in(action, name)), "text")
