"""From a reply to typed edits.

Forms may vary (fences, reasoning, prose around, a missing list bracket, an operation in other
words), meanings may not: what is not certain becomes a problem in words that can be sent back. One
entry that cannot be read leaves the others standing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optimizer.edits import DESCRIPTION, SKILLS, Edit, Op
from optimizer.harness import TOOLS
from optimizer.reflection.json_in_text import NoAnswer, object_with
from optimizer.reflection.modes import Mode

MAX_CAUSE_CHARS = 2_000
MAX_TASKS = 200

_OPS = {
    "add": Op.APPEND,
    "insert after": Op.INSERT,
    "remove": Op.DELETE,
    **{str(op): op for op in Op},
}


@dataclass(frozen=True)
class Answer:
    """What a reply says. Without `is_read` there is nothing in it but one problem."""

    cause: str = ""
    """Of the failures, as the reflector names it."""
    edits: tuple[Edit, ...] = ()
    """With the tasks that it names as sources; nothing is checked against a harness."""
    problems: tuple[str, ...] = ()
    is_read: bool = True
    """False: no answer, or none that is certain."""


def read_answer(text: str | None, mode: Mode = Mode.EDITS) -> Answer:
    """Never raises, whatever was written."""
    try:
        found = object_with(text or "", mode.field)
    except NoAnswer as why:
        return Answer(problems=(str(why),), is_read=False)
    entries = found[mode.field]
    if isinstance(entries, dict):
        entries = [entries]
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        problem = f"{mode.field}: accepts a list, not {_kind(entries)}"
        return Answer(problems=(problem,), is_read=False)
    edits, problems = [], []
    for number, entry in enumerate(entries, start=1):
        try:
            edits.append(_READERS[mode](_named(entry)))
        except NoAnswer as why:
            problems.append(f"{mode.field}, number {number}: {why}")
    cause = found.get("cause")
    said = cause.strip()[:MAX_CAUSE_CHARS] if isinstance(cause, str) else ""
    return Answer(storable(said), tuple(edits), tuple(problems))


def storable(text: str) -> str:
    """Without what no database keeps: unpaired surrogates and NUL."""
    return text.encode("utf-8", "replace").decode().replace("\x00", "")


# --- one entry


def _edit(entry: Mapping[str, Any]) -> Edit:
    said = _text(entry, "op", required=True)
    op = _OPS.get(" ".join(said.lower().replace("_", " ").split()))
    if op is None:
        raise NoAnswer(f"op is {said[:40]!r}; accepts {', '.join(Op)}")
    component = _text(entry, "component", required=True).strip("`").removeprefix("./")
    content = entry.get("content")
    if component == SKILLS and isinstance(content, dict):
        content = json.dumps(content, ensure_ascii=False)  # as text or as it is: the same
    elif op is Op.DELETE or content is None:
        content = ""
    if not isinstance(content, str):
        raise NoAnswer(f"content accepts text, not {_kind(content)}")
    if op is not Op.DELETE and not content.strip():
        raise NoAnswer("content is empty")
    anchor = _text(entry, "anchor", required=op in (Op.REPLACE, Op.DELETE))
    if op is Op.APPEND:
        anchor = ""  # there is one end
    return _made(Mode.EDITS, entry, op, component, anchor, content)


def _skill(entry: Mapping[str, Any]) -> Edit:
    skill = {key: _text(entry, key, required=True) for key in ("name", "description", "body")}
    content = json.dumps(skill, ensure_ascii=False)
    return _made(Mode.SKILL, entry, Op.APPEND, SKILLS, "", content)


def _tool(entry: Mapping[str, Any]) -> Edit:
    tool, parameter = _text(entry, "tool", required=True), _text(entry, "parameter")
    anchor = f"{tool}.{parameter}" if parameter else tool
    content = _text(entry, "description", required=True)
    return _made(Mode.TOOLS, entry, Op.SET, TOOLS, anchor, content)


def _trigger(entry: Mapping[str, Any]) -> Edit:
    component = f"skills/{_text(entry, 'skill', required=True)}/SKILL.md"
    content = _text(entry, "description", required=True)
    return _made(Mode.TRIGGERS, entry, Op.SET, component, DESCRIPTION, content)


_READERS: Mapping[Mode, Callable[[Mapping[str, Any]], Edit]] = {
    Mode.EDITS: _edit,
    Mode.SKILL: _skill,
    Mode.TOOLS: _tool,
    Mode.TRIGGERS: _trigger,
}


def _made(
    mode: Mode, entry: Mapping[str, Any], op: Op, component: str, anchor: str, content: str
) -> Edit:
    return Edit(
        op,
        storable(component),
        storable(anchor),
        storable(content),
        operator=str(mode),
        sources=_tasks(entry.get("tasks")),
    )


def _tasks(said: object) -> tuple[str, ...]:
    if isinstance(said, str):
        said = [said]
    if not isinstance(said, Sequence):
        return ()
    named = {storable(str(item).strip()) for item in said if isinstance(item, str | int)}
    return tuple(sorted(named - {""}))[:MAX_TASKS]


def _named(entry: object) -> dict[str, Any]:
    if not isinstance(entry, dict):
        raise NoAnswer(f"accepts an object, not {_kind(entry)}")
    return {str(key).strip().lower(): value for key, value in entry.items()}


def _text(entry: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    value = entry.get(key)
    if value is None:
        value = ""
    if not isinstance(value, str):
        raise NoAnswer(f"{key} accepts text, not {_kind(value)}")
    if required and not value.strip():
        raise NoAnswer(f"{key} is missing")
    return value.strip()


def _kind(value: object) -> str:
    names = {list: "a list", dict: "an object", str: "text", bool: "true or false"}
    return "nothing" if value is None else names.get(type(value), "a number")
