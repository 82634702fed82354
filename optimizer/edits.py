"""Typed, atomic changes of a harness.

An edit addresses the parsed body of a component, never the raw file, so it cannot break a format:

| component              | body                        | anchor                         |
|------------------------|-----------------------------|--------------------------------|
| instructions.md        | paragraphs                  | text that one paragraph holds  |
| skills/<name>/SKILL.md | paragraphs of the body      | the same; `description` to set |
| skills                 | the skills themselves       | name of a skill                |
| demonstrations.jsonl   | demonstrations              | id of a demonstration          |
| harness.yaml           | model, sampling and limits  | dotted name, for `set`         |
| tools.json             | descriptions                | `tool` or `tool.parameter`     |

`append` adds at the end, `insert` after the anchor (at the start when it is empty), `replace` and
`delete` act on the anchored item, `set` gives a field or a whole body a new value.

Two edits exclude each other if they carry the same group, if they share an anchor and one of them
replaces, deletes or sets it, or if both set the same whole body. Whole bodies are set first; the
rest is applied in the order given. The identity of an edit is the hash of what it does, not of who
proposed it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, TypeVar

from optimizer.configuration import CONFIG, read_config
from optimizer.errors import EditInvalid, HarnessInvalid
from optimizer.harness import (
    DEMONSTRATIONS,
    INSTRUCTIONS,
    SKILL_FILE,
    TOOLS,
    Demonstration,
    Harness,
    config_values,
    parse_demonstration,
    parse_demonstrations,
)
from optimizer.skills import Skill, frontmatter_problems

SKILLS = "skills"
DESCRIPTION = "description"
T = TypeVar("T")


class Op(StrEnum):
    APPEND = "append"
    INSERT = "insert"
    REPLACE = "replace"
    DELETE = "delete"
    SET = "set"


@dataclass(frozen=True)
class Edit:
    op: Op
    component: str
    anchor: str = ""
    content: str = ""
    operator: str = ""
    """Who made it, for instance `demonstrations.reference`."""
    support: int = 0
    """Number of distinct tasks behind it."""
    sources: tuple[str, ...] = ()
    """Keys of those tasks or traces."""
    group: str = ""
    """Edits of one group are alternatives; at most one is applied."""

    @cached_property
    def sha256(self) -> str:
        identity = [str(self.op), self.component, self.anchor, self.content]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()

    @property
    def short(self) -> str:
        return self.sha256[:12]

    @property
    def is_demonstration(self) -> bool:
        """Adds a demonstration; what such edits achieve together depends on their number."""
        return self.component == DEMONSTRATIONS and self.op in (Op.APPEND, Op.INSERT)

    def to_json(self) -> dict[str, Any]:
        return {
            "op": str(self.op),
            "component": self.component,
            "anchor": self.anchor,
            "content": self.content,
            "operator": self.operator,
            "support": self.support,
            "sources": list(self.sources),
            "group": self.group,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Edit:
        """Raises EditInvalid."""
        try:
            return cls(
                op=Op(data["op"]),
                component=str(data["component"]),
                anchor=str(data.get("anchor", "")),
                content=str(data.get("content", "")),
                operator=str(data.get("operator", "")),
                support=int(data.get("support", 0)),
                sources=tuple(str(item) for item in data.get("sources", ())),
                group=str(data.get("group", "")),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise EditInvalid(
                f"not an edit ({error}); needs op ({', '.join(Op)}) and component"
            ) from error


def conflict_groups(edits: Sequence[Edit]) -> list[tuple[int, ...]]:
    """The edits' positions in groups of which at most one may be applied, by first position.

    A partition: exclusion is taken as transitive. Independent edits are groups of one.
    """
    parent = list(range(len(edits)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, edit in enumerate(edits):
        for j in range(i):
            if are_exclusive(edits[j], edit):
                low, high = sorted((root(i), root(j)))
                parent[high] = low
    groups: dict[int, list[int]] = {}
    for i in range(len(edits)):
        groups.setdefault(root(i), []).append(i)
    return [tuple(members) for _, members in sorted(groups.items())]


def are_exclusive(a: Edit, b: Edit) -> bool:
    if a.group and a.group == b.group:
        return True
    if (a.component, a.anchor) != (b.component, b.anchor):
        return False
    if not a.anchor:
        return a.op is Op.SET and b.op is Op.SET
    final = (Op.REPLACE, Op.DELETE, Op.SET)
    return a.op in final or b.op in final


def apply_edits(harness: Harness, edits: Iterable[Edit]) -> Harness:
    """The harness with all edits applied: whole bodies first, then in the order given.

    Raises EditInvalid if two exclude each other, if an anchor is missing or ambiguous, or if the
    result is not a valid harness.
    """
    chosen = list(edits)
    for members in conflict_groups(chosen):
        if len(members) > 1:
            names = ", ".join(chosen[i].short for i in members)
            raise EditInvalid(f"edits exclude each other: {names}")
    for edit in sorted(chosen, key=lambda edit: not (edit.op is Op.SET and not edit.anchor)):
        harness = apply_edit(harness, edit)
    return harness


def apply_edit(harness: Harness, edit: Edit) -> Harness:
    try:
        return _appliers(edit)(harness, edit)
    except HarnessInvalid as error:
        raise EditInvalid(f"{edit.component}: {error}") from error


# --- one applier for each kind of component


def _appliers(edit: Edit) -> Callable[[Harness, Edit], Harness]:
    fixed: Mapping[str, Callable[[Harness, Edit], Harness]] = {
        INSTRUCTIONS: _on_instructions,
        DEMONSTRATIONS: _on_demonstrations,
        SKILLS: _on_skills,
        CONFIG: _on_config,
        TOOLS: _on_tools,
    }
    if edit.component in fixed:
        return fixed[edit.component]
    if SKILL_FILE.fullmatch(edit.component):
        return _on_skill
    raise EditInvalid(
        f"component {edit.component!r} cannot be edited; accepts {', '.join(fixed)} "
        "and skills/<name>/SKILL.md"
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
    """A new skill from JSON with name, description and body."""
    try:
        record = json.loads(edit.content)
        new = Skill(record["name"], record["description"], record.get("body", ""))
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


def _on_config(harness: Harness, edit: Edit) -> Harness:
    if edit.op is not Op.SET or not edit.anchor:
        raise EditInvalid(f"{CONFIG}: accepts set, with the field's dotted name as anchor")
    try:
        value = json.loads(edit.content)
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
    if edit.op is not Op.SET:
        raise EditInvalid(f"{TOOLS}: accepts set, with `tool` or `tool.parameter` as anchor")
    name, _, parameter = edit.anchor.partition(".")
    tools = [json.loads(json.dumps(tool)) for tool in harness.tools]
    tool = tools[_position(tools, lambda item: item["name"] == name, edit, f"tool {name}")]
    if parameter:
        properties = tool.get("parameters", {}).get("properties", {})
        if parameter not in properties:
            raise EditInvalid(f"{TOOLS}: {name} has no parameter {parameter!r}")
        properties[parameter]["description"] = edit.content
    else:
        tool["description"] = edit.content
    return replace(harness, tools=tuple(tools))


# --- bodies


def paragraphs(text: str) -> list[str]:
    """The blocks between blank lines, without the blank lines around them."""
    blocks: list[list[str]] = [[]]
    for line in text.replace("\r\n", "\n").split("\n"):
        if line.strip():
            blocks[-1].append(line.rstrip())
        elif blocks[-1]:
            blocks.append([])
    return ["\n".join(block) for block in blocks if block]


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
        blocks = _edited_items(paragraphs(text), new, edit, lambda block: edit.anchor in block)
    return "\n\n".join(blocks) + "\n" if blocks else ""


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


def demonstration_edit(item: Demonstration, **provenance: Any) -> Edit:
    """The edit that appends a demonstration."""
    return Edit(Op.APPEND, DEMONSTRATIONS, content=item.line(), **provenance)
