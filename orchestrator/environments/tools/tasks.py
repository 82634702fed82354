"""What a task and a source of the kind `tools` are, checked before anything runs. Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

MAX_CALLS = 20
TOOL_TIMEOUT_S = 30.0
SUBMIT = "submit"
GRADE = "grade"
RESERVED = frozenset({"reset", "step", "state", "close", SUBMIT, GRADE})
"""OpenEnv's and this environment's own; no function may have such a name."""
STATE = "state"
"""Name of the parameter by which a function gets the episode's state."""
_TASK_NAMES = frozenset(
    {"state", "answer", "tolerance", "expected_state", "data", "max_calls", "key", "prompt"}
)
_SOURCE_NAMES = frozenset(
    {"functions", "server", "grade", "answer_schema", "tool_timeout_s", "offered"}
)


@dataclass(frozen=True)
class ToolTask:
    """One exercise. All but the prompt stays in the server."""

    key: str
    prompt: str
    state: Mapping[str, Any] = field(default_factory=dict)
    """What functions find in `state` at the start."""
    answer: Any = None
    """Expected of `submit`; None: no answer is compared."""
    tolerance: float = 0.0
    """Greatest difference of numbers in the answer and the state."""
    expected_state: Mapping[str, Any] | None = None
    """Keys that the state must have at the end, with their values; others do not matter."""
    data: Any = None
    """For `grade` alone."""
    max_calls: int = MAX_CALLS
    """Calls at most, the one of `submit` too."""

    @classmethod
    def from_json(cls, record: Mapping[str, Any], *, has_grade: bool = True) -> ToolTask:
        """`ValueError` that names the field and the fix."""
        if unknown := sorted(set(record) - _TASK_NAMES):
            raise ValueError(f"{unknown[0]}: unknown; known are {', '.join(sorted(_TASK_NAMES))}")
        state, expected = record.get("state") or {}, record.get("expected_state")
        if not isinstance(state, Mapping):
            raise ValueError("state: an object was expected")
        if expected is not None and not isinstance(expected, Mapping):
            raise ValueError("expected_state: an object was expected")
        tolerance = _number(record, "tolerance", 0.0)
        calls = _number(record, "max_calls", MAX_CALLS)
        if tolerance < 0:
            raise ValueError("tolerance: at least 0")
        if calls != int(calls) or not 1 <= calls <= 1000:
            raise ValueError("max_calls: a whole number from 1 to 1000")
        if record.get("answer") is None and expected is None and not has_grade:
            raise ValueError(
                "answer: nothing decides the reward; give an answer, an expected_state, or a "
                "function grade(state, answer, task)"
            )
        return cls(
            key=str(record.get("key", "")),
            prompt=str(record.get("prompt", "")),
            state=dict(state),
            answer=record.get("answer"),
            tolerance=tolerance,
            expected_state=dict(expected) if expected is not None else None,
            data=record.get("data"),
            max_calls=int(calls),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "prompt": self.prompt,
            "state": dict(self.state),
            "answer": self.answer,
            "tolerance": self.tolerance,
            "expected_state": self.expected_state,
            "data": self.data,
            "max_calls": self.max_calls,
        }


@dataclass(frozen=True)
class ToolSource:
    """Where the tools come from: exactly one of `functions`, `command` and `url`."""

    functions: str = ""
    command: tuple[str, ...] = ()
    """Of an MCP server on its standard input and output, started for each episode."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Laid out in the command's folder, by path."""
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    """Of an MCP server by streamable HTTP; each episode has a session of its own."""
    headers: Mapping[str, str] = field(default_factory=dict)
    grade: str = ""
    answer_schema: Mapping[str, Any] | None = None
    """Of what `submit` takes; None: one value, `answer`."""
    tool_timeout_s: float = TOOL_TIMEOUT_S
    offered: tuple[str, ...] = ()
    """Names of the server's tools that agents get; empty: all."""

    @property
    def has_grade(self) -> bool:
        return bool(self.grade) or GRADE in _functions_in(self.functions, "functions")

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> ToolSource:
        """`ValueError` that names the field and the fix. Parses Python, runs none."""
        if unknown := sorted(set(source) - _SOURCE_NAMES):
            raise ValueError(f"{unknown[0]}: unknown; known are {', '.join(sorted(_SOURCE_NAMES))}")
        functions, server = source.get("functions") or "", source.get("server") or None
        if bool(functions) == bool(server):
            raise ValueError("functions: give functions, or else a server (one of the two)")
        if functions:
            _check_functions(str(functions))
        grade = str(source.get("grade") or "")
        if grade and GRADE not in _functions_in(grade, "grade"):
            raise ValueError("grade: defines no function grade(state, answer, task)")
        schema = source.get("answer_schema") or None
        if schema is not None and (
            not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping)
        ):
            raise ValueError("answer_schema: a JSON schema with properties was expected")
        timeout_s = _number(source, "tool_timeout_s", TOOL_TIMEOUT_S)
        if not 0 < timeout_s <= 600:
            raise ValueError("tool_timeout_s: above 0, at most 600 seconds")
        return cls(
            functions=str(functions),
            grade=grade,
            answer_schema=dict(schema) if schema is not None else None,
            tool_timeout_s=timeout_s,
            offered=tuple(map(str, source.get("offered") or ())),
            **(_server(server) if server else {}),
        )


def only_passes_on(source: Mapping[str, Any]) -> bool:
    """Whether its server runs nothing that the author wrote; for any source, checked or not."""
    server = source.get("server")
    if not isinstance(server, Mapping) or source.get("grade"):
        return False
    return bool(server.get("url")) and not server.get("command")


def _server(server: Any) -> dict[str, Any]:
    if not isinstance(server, Mapping):
        raise ValueError('server: an object was expected, {"command": […]} or {"url": …}')
    known = {"command", "url", "files", "env", "headers"}
    if unknown := sorted(set(server) - known):
        raise ValueError(f"server.{unknown[0]}: unknown; known are {', '.join(sorted(known))}")
    command, url = server.get("command"), server.get("url")
    if bool(command) == bool(url):
        raise ValueError("server: give a command, or else a url (one of the two)")
    if command and not (
        isinstance(command, Sequence)
        and not isinstance(command, str)
        and all(isinstance(part, str) and part for part in command)
    ):
        raise ValueError('server.command: a list of texts was expected, ["python", "server.py"]')
    if url:
        parts = urlsplit(str(url))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("server.url: http(s)://host/path was expected")
    for name in ("files", "env", "headers"):
        value = server.get(name) or {}
        if not isinstance(value, Mapping) or not all(isinstance(v, str) for v in value.values()):
            raise ValueError(f"server.{name}: an object of texts was expected")
    for path in server.get("files") or {}:
        check_path(path, "server.files")
    return {
        "command": tuple(command or ()),
        "url": str(url or ""),
        **{name: dict(server.get(name) or {}) for name in ("files", "env", "headers")},
    }


def check_path(path: str, name: str) -> None:
    """`ValueError` for a path that is not plain, or leads out of its folder."""
    parts = path.split("/")
    if (
        not path
        or len(path) > 200
        or any(part in ("", ".", "..") or len(part) > 100 for part in parts)
        or any(ord(c) < 32 or c in "\\\x7f" for c in path)
    ):
        raise ValueError(f"{name}: {path!r:.80} is not a plain path below the folder (a/b.txt)")


def _check_functions(text: str) -> None:
    found = _functions_in(text, "functions")
    tools = [name for name in found if not name.startswith("_") and name != GRADE]
    if not tools:
        raise ValueError("functions: defines no function that an agent could call")
    if taken := sorted(set(tools) & RESERVED):
        raise ValueError(f"functions: {taken[0]} is the environment's own name; choose another")
    for name in tools:
        node = found[name]
        if node.args.vararg or node.args.kwarg or node.args.posonlyargs:
            raise ValueError(f"functions: {name}: name each parameter, no * and no /")
        for argument in (*node.args.args, *node.args.kwonlyargs):
            if argument.arg != STATE and argument.annotation is None:
                raise ValueError(f"functions: {name}: {argument.arg} has no type (id: str)")
        if not ast.get_docstring(node):
            raise ValueError(f"functions: {name}: has no docstring; agents choose by it")


def _functions_in(text: str, field_name: str) -> dict[str, ast.FunctionDef]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as exc:
        line = getattr(exc, "lineno", None)
        where = f"line {line}: " if line else ""
        raise ValueError(f"{field_name}: {where}{getattr(exc, 'msg', exc)}") from exc
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _number(record: Mapping[str, Any], name: str, default: float) -> float:
    value = record.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name}: a number was expected")
    return float(value)
