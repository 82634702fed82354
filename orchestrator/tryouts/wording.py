"""An action in the words of an agent: a reply that its interface reads as that very action.

An interface says how replies are read, not how an action is written. So the forms that agents are
told of are tried in turn, and one counts only if it is read back as the same action. Pure.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.environments.kinds.acting import Interface


def text_of(interface: Interface, action: Mapping[str, Any]) -> str | None:
    """None where no form is read back as this action, for instance a command of several lines."""
    is_told_as_json = type(interface) is not Interface
    for text in _forms(action, json_first=is_told_as_json):
        if interface.read(text) == dict(action):
            return text
    return None


def readable(action: Mapping[str, Any]) -> str:
    """For pages: the only text, a call as its tool and arguments, or JSON."""
    if len(action) == 1 and isinstance(value := next(iter(action.values())), str):
        return value
    if call := next(_calls(action), ""):
        return call
    return json.dumps(action, ensure_ascii=False)


def _forms(action: Mapping[str, Any], *, json_first: bool) -> Iterator[str]:
    yield from _calls(action)
    if json_first:
        yield json.dumps(action, ensure_ascii=False)
    texts = {name: value for name, value in action.items() if isinstance(value, str)}
    if len(texts) == 1 == len(action):
        name, value = next(iter(texts.items()))
        yield value
        yield f"{name}: {value}"
        yield f"```{name}\n{value}\n```"
    if len(action) == 1 and True in action.values():
        yield next(iter(action))
    if not json_first:
        yield json.dumps(action, ensure_ascii=False)


def _calls(action: Mapping[str, Any]) -> Iterator[str]:
    """`name key=value` where all values are plain, and `name {"key": value}`."""
    name, arguments = action.get("tool_name"), action.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        return
    if not any(isinstance(value, dict | list) or value is None for value in arguments.values()):
        pairs = [f"{key}={shlex.quote(_plain(value))}" for key, value in arguments.items()]
        yield " ".join([name, *pairs])
    yield f"{name} {json.dumps(arguments, ensure_ascii=False)}"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
