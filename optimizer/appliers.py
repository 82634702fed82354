"""What each operation does to each component of a harness.

`optimizer.edits` says what an edit is and which exclude each other; here is one function for each
kind of component. All raise EditInvalid, or HarnessInvalid where the result is no harness.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from optimizer.canonical import read_json, unix_lines
from optimizer.configuration import CONFIG, read_config
from optimizer.errors import EditInvalid
from optimizer.harness import (
    DEMONSTRATIONS,
    INSTRUCTIONS,
    SKILL_FILE,
    Harness,
    config_values,
    parse_demonstration,
    parse_demonstrations,
)
from optimizer.paragraphs import joined, paragraphs
from optimizer.skills import Skill, frontmatter_problems
from optimizer.tools import TOOLS, described, undescribed

if TYPE_CHECKING:
    from optimizer.edits import Edit

SKILLS = "skills"
DESCRIPTION = "description"
REFERENCE_FILE = re.compile(r"skills/([^/]+)/references/[^/]+")
POOL = "demonstrations"
"""Component of an edit that adds demonstrations and says which of all a task is told."""
NEW_SKILL = ("name", "description", "body")
T = TypeVar("T")


class Op(StrEnum):
    APPEND = "append"
    INSERT = "insert"
    REPLACE = "replace"
    DELETE = "delete"
    SET = "set"


def applier(edit: Edit) -> Callable[[Harness, Edit], Harness]:
    fixed: Mapping[str, Callable[[Harness, Edit], Harness]] = {
        INSTRUCTIONS: _on_instructions,
        DEMONSTRATIONS: _on_demonstrations,
        SKILLS: _on_skills,
        POOL: _on_pool,
        CONFIG: _on_config,
        TOOLS: _on_tools,
    }
    if edit.component in fixed:
        return fixed[edit.component]
    if SKILL_FILE.fullmatch(edit.component):
        return _on_skill
    if REFERENCE_FILE.fullmatch(edit.component):
        return _on_reference
    raise EditInvalid(
        f"component {edit.component!r} cannot be edited; accepts {', '.join(fixed)}, "
        "skills/<name>/SKILL.md and skills/<name>/references/<file>"
    )


def _on_instructions(harness: Harness, edit: Edit) -> Harness:
    return replace(harness, instructions=_edited_text(harness.instructions, edit))


def _on_skill(harness: Harness, edit: Edit) -> Harness:
    name = edit.component.split("/")[1]
    skills = list(harness.skills)
    at = _position(skills, lambda skill: skill.name == name, edit, f"skill {name}")
    skill = skills[at]
    if edit.op is Op.SET and edit.anchor == DESCRIPTION:
        changed = replace(skill, description=edit.content)
    else:
        changed = replace(skill, body=_edited_text(skill.body, edit))
    return _with_skills(harness, [*skills[:at], changed, *skills[at + 1 :]])


def _on_reference(harness: Harness, edit: Edit) -> Harness:
    name = edit.component.split("/")[1]
    _position(list(harness.skills), lambda skill: skill.name == name, edit, f"skill {name}")
    files = dict(harness.files)
    if edit.is_whole:
        files[edit.component] = unix_lines(edit.content)
    elif edit.component not in files:
        raise EditInvalid(f"{edit.component}: is not there; make it with set")
    elif edit.op is Op.DELETE and not edit.anchor:
        del files[edit.component]
    else:
        files[edit.component] = _edited_text(files[edit.component], edit)
    return replace(harness, files=files)


def _on_skills(harness: Harness, edit: Edit) -> Harness:
    skills = list(harness.skills)
    if edit.op is Op.APPEND:
        new = _skill_from(edit)
        if new.name in {skill.name for skill in skills}:
            raise EditInvalid(f"skills: {new.name!r} exists")
        return _with_skills(harness, [*skills, new])
    if edit.op is Op.DELETE:
        at = _position(skills, lambda skill: skill.name == edit.anchor, edit, edit.anchor)
        below = f"skills/{edit.anchor}/"
        files = {k: v for k, v in harness.files.items() if not k.startswith(below)}
        return _with_skills(replace(harness, files=files), [*skills[:at], *skills[at + 1 :]])
    raise EditInvalid("skills: accepts append and delete; edit a skill by its own file")


def _skill_from(edit: Edit) -> Skill:
    """A new skill from JSON with name, description, body and further fields of the frontmatter."""
    try:
        record = read_json(edit.content)
        extra = {key: value for key, value in record.items() if key not in NEW_SKILL}
        new = Skill(
            record["name"], record["description"], unix_lines(record.get("body", "")), extra
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EditInvalid("skills: content accepts JSON with name, description, body") from error
    return new


def _with_skills(harness: Harness, skills: Sequence[Skill]) -> Harness:
    for skill in skills:
        values = {"name": skill.name, "description": skill.description, **skill.extra}
        problems = frontmatter_problems(values, skill.name)
        if problems or not isinstance(skill.body, str):
            raise EditInvalid(f"skills/{skill.name}: {'; '.join(problems) or 'body is no text'}")
    return replace(harness, skills=tuple(sorted(skills, key=lambda skill: skill.name)))


def _on_demonstrations(harness: Harness, edit: Edit) -> Harness:
    if edit.op is Op.SET:
        return replace(harness, demonstrations=parse_demonstrations(edit.content))
    items = list(harness.demonstrations)
    new = [] if edit.op is Op.DELETE else [parse_demonstration(edit.content)]
    changed = _edited_items(items, new, edit, lambda item: item.id == edit.anchor)
    ids = [item.id for item in changed]
    if len(set(ids)) < len(ids):
        raise EditInvalid(f"{DEMONSTRATIONS}: id {new[0].id!r} exists")
    return replace(harness, demonstrations=tuple(changed))


def _on_pool(harness: Harness, edit: Edit) -> Harness:
    """Adds demonstrations that are not there yet, and sets the picking."""
    if not edit.is_whole:
        raise EditInvalid(f"{POOL}: accepts set without an anchor")
    try:
        record = read_json(edit.content)
        lines = [json.dumps(item, ensure_ascii=False) for item in record.pop("add", [])]
    except (ValueError, TypeError, AttributeError) as error:
        raise EditInvalid(f"{POOL}: content accepts JSON with pick, k and add") from error
    new = parse_demonstrations("\n".join(lines))
    if twice := {item.id for item in new} & {item.id for item in harness.demonstrations}:
        raise EditInvalid(f"{POOL}: id {min(twice)!r} exists")
    values = config_values(harness) | {"demonstrations": record}
    demonstrations = (*harness.demonstrations, *new)
    return replace(harness, demonstrations=demonstrations, **read_config(values))


def _on_config(harness: Harness, edit: Edit) -> Harness:
    if edit.op is not Op.SET or not edit.anchor:
        raise EditInvalid(f"{CONFIG}: accepts set, with the field's dotted name as anchor")
    try:
        value = read_json(edit.content)
    except ValueError as error:
        raise EditInvalid(f"{CONFIG}: content accepts a JSON value: {error}") from error
    values = config_values(harness)
    *above, last = edit.anchor.split(".")
    at = values
    for part in above:
        at = at.setdefault(part, {})
        if not isinstance(at, dict):
            raise EditInvalid(f"{CONFIG}: {edit.anchor} is not a field")
    at[last] = value
    return replace(harness, **read_config(values))


def _on_tools(harness: Harness, edit: Edit) -> Harness:
    if edit.op not in (Op.SET, Op.DELETE) or not edit.anchor.strip("."):
        raise EditInvalid(
            f"{TOOLS}: accepts set and delete, with `tool` or `tool.parameter` as anchor"
        )
    if edit.op is Op.SET:
        tools = described(harness.tools, edit.anchor, edit.content)
    else:
        tools = undescribed(harness.tools, edit.anchor)
    return replace(harness, tools=tools)


# --- bodies


def _edited_text(text: str, edit: Edit) -> str:
    if edit.op is Op.SET:
        if edit.anchor:
            raise EditInvalid(
                f"{edit.component}: nothing is called {edit.anchor!r}; set accepts none"
            )
        blocks = paragraphs(edit.content)
    else:
        new = [] if edit.op is Op.DELETE else paragraphs(edit.content)
        if edit.op is not Op.DELETE and not new:
            raise EditInvalid(f"{edit.component}: the content is empty")
        old = paragraphs(text)
        anchor = edit.anchor if edit.anchor in old else "\n".join(paragraphs(edit.anchor))
        if anchor in old:  # a paragraph as a whole; another may quote it
            at = old.index(anchor)
            marked = [(i == at, block) for i, block in enumerate(old)]
        else:
            marked = [(bool(anchor) and anchor in block, block) for block in old]
        fresh = [(False, block) for block in new]
        edited = _edited_items(marked, fresh, edit, lambda item: item[0])
        blocks = [block for _, block in edited]
    return joined(blocks)


def _edited_items(
    items: Sequence[T], new: Sequence[T], edit: Edit, is_anchor: Callable[[T], bool]
) -> list[T]:
    if edit.op is Op.APPEND:
        return [*items, *new]
    if edit.op is Op.INSERT and not edit.anchor:
        return [*new, *items]
    at = _position(items, is_anchor, edit, edit.anchor)
    kept = [items[at]] if edit.op is Op.INSERT else []
    return [*items[:at], *kept, *new, *items[at + 1 :]]


def _position(items: Sequence[Any], is_anchor: Callable[[Any], bool], edit: Edit, name: str) -> int:
    found = [i for i, item in enumerate(items) if is_anchor(item)]
    if len(found) != 1 or not name:
        raise EditInvalid(
            f"{edit.component}: the anchor {name!r} is in {len(found)} places; it must be in one"
        )
    return found[0]
