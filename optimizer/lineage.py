"""Which edit made which line, what lies between two harnesses, and how to take an edit back.

Lineage is computed from the seed and the edits, and never written into the files: comments would
cost tokens in every rollout.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import NamedTuple

from optimizer.appliers import REFERENCE_FILE
from optimizer.edits import (
    DESCRIPTION,
    SKILLS,
    Edit,
    Op,
    apply_edit,
    apply_edits,
    conflict_groups,
    in_order,
    paragraphs,
)
from optimizer.errors import EditInvalid
from optimizer.harness import CONFIG, DEMONSTRATIONS, INSTRUCTIONS, Harness, config_values
from optimizer.paragraphs import tidy
from optimizer.skills import Skill
from optimizer.tools import TOOLS, parameters_of


class Line(NamedTuple):
    """A paragraph, demonstration, field or description, and where it came from."""

    text: str
    edit: str | None
    """Hash of the edit that made it what it is; None: it is the seed's."""


def blame(seed: Harness, edits: Iterable[Edit]) -> dict[str, list[Line]]:
    """By component, its lines in order. Raises EditInvalid where the edits cannot be applied."""
    chosen = list(edits)
    apply_edits(seed, chosen)  # refuses what excludes each other
    harness = seed
    lines = {key: [Line(text, None) for text in texts] for key, texts in parts_of(seed).items()}
    for edit in in_order(chosen):
        harness = apply_edit(harness, edit)
        after = parts_of(harness)
        lines = {key: _carried(lines.get(key, []), after[key], edit.sha256) for key in after}
    return lines


def parts_of(harness: Harness) -> dict[str, list[str]]:
    """What edits act on, by component: paragraphs, demonstrations, fields, descriptions."""
    parts = {
        INSTRUCTIONS: paragraphs(harness.instructions),
        CONFIG: [f"{k}: {v}" for k, v in config_fields(harness).items()],
        DEMONSTRATIONS: [item.line() for item in harness.demonstrations],
        TOOLS: [f"{anchor}: {text}" for anchor, text in descriptions_of(harness).items()],
    }
    for skill in harness.skills:
        parts[skill_file(skill.name)] = [
            f"{DESCRIPTION}: {skill.description}",
            *paragraphs(skill.body),
        ]
    parts |= {
        path: paragraphs(text)
        for path, text in harness.files.items()
        if REFERENCE_FILE.fullmatch(path)
    }
    return {key: texts for key, texts in sorted(parts.items()) if texts}


def config_fields(harness: Harness) -> dict[str, str]:
    """Dotted name -> value as JSON, of harness.yaml."""
    fields: dict[str, str] = {}
    for name, value in config_values(harness).items():
        inside = value if isinstance(value, dict) else {"": value}
        fields |= {
            f"{name}.{key}".rstrip("."): json.dumps(item, ensure_ascii=False)
            for key, item in inside.items()
        }
    return fields


def descriptions_of(harness: Harness) -> dict[str, str]:
    """`tool` or `tool.parameter` -> description, where there is one."""
    found = {}
    for tool in harness.tools:
        found[tool["name"]] = tool.get("description", "")
        found |= {f"{tool['name']}.{key}": text for key, text in parameters_of(tool).items()}
    return {anchor: text for anchor, text in found.items() if text}


def edits_between(
    before: Harness, after: Harness, *, operator: str = "", group: str = ""
) -> list[Edit]:
    """Edits that make `before` what `after` is, with texts in the form of paragraphs (`tidy`).

    A text that only grew at its end gives an append; any other change sets the whole body. With
    `group`, edits of one component are alternatives to those that carry the same `group`.

    Raises EditInvalid where they differ in what no edit can change: scripts, assets and evals of a
    skill, schemas of tools, fields of a frontmatter.
    """
    found = [
        *_between_texts(INSTRUCTIONS, before.instructions, after.instructions),
        *_between_demonstrations(before, after),
        *_between_skills(before, after),
        *_between_files(before, after),
        *_between_fields(before, after),
        *_between_tools(before, after),
    ]
    edits = [
        Edit(
            edit.op,
            edit.component,
            edit.anchor,
            edit.content,
            operator=operator,
            group=f"{group}:{edit.component}:{edit.anchor}" if group else "",
        )
        for edit in found
    ]
    reached = before
    for edit in edits:
        reached = apply_edit(reached, edit)
    if tidied(reached).sha256 != tidied(after).sha256:
        differing = sorted(
            key
            for key in reached.components().keys() | after.components().keys()
            if tidied(reached).components().get(key) != tidied(after).components().get(key)
        )
        raise EditInvalid(f"no edit can change this: {', '.join(differing)}")
    return edits


def undo(harness: Harness, edit: Edit) -> list[Edit]:
    """Edits that take `edit` back after it was applied to `harness`; their order counts.

    Raises EditInvalid where the edit cannot be applied, and where it deleted a skill with files
    that no edit can make.
    """
    return edits_between(apply_edit(harness, edit), harness, operator="undo")


def apply_in_turn(harness: Harness, edits: Iterable[Edit]) -> Harness:
    """One after the other, each made for what the one before left; not a set for one seed."""
    for edit in edits:
        harness = apply_edit(harness, edit)
    return harness


def crossover(
    first: Sequence[Edit], second: Sequence[Edit], take_first: Mapping[str, bool]
) -> tuple[Edit, ...]:
    """A child of two candidates of one seed: each component has the edits of one parent.

    `take_first`: component -> whether the first parent's count; the first's where it is silent. All
    skills are one component, for one edit can make a skill that another changes. Where two edits of
    the child exclude each other, the first one stays.
    """
    components = {component_of(edit) for edit in (*first, *second)}
    child = [
        edit
        for component in sorted(components)
        for edit in (first if take_first.get(component, True) else second)
        if component_of(edit) == component
    ]
    child = list({edit.sha256: edit for edit in child}.values())
    return tuple(child[members[0]] for members in conflict_groups(child))


def component_of(edit: Edit) -> str:
    """The component that a crossover takes as one."""
    return SKILLS if edit.component.startswith(f"{SKILLS}/") else edit.component


def tidied(harness: Harness) -> Harness:
    """The harness with its texts in the form that edits leave them in."""
    skills = tuple(replace(skill, body=tidy(skill.body)) for skill in harness.skills)
    return replace(harness, instructions=tidy(harness.instructions), skills=skills)


def skill_file(name: str) -> str:
    return f"skills/{name}/SKILL.md"


# --- one function for each kind of component


def _between_texts(component: str, before: str, after: str) -> list[Edit]:
    old, new = paragraphs(before), paragraphs(after)
    if old == new:
        return []
    if len(new) > len(old) and new[: len(old)] == old:
        return [Edit(Op.APPEND, component, content=tidy("\n\n".join(new[len(old) :])))]
    return [Edit(Op.SET, component, content=tidy(after))]


def _between_demonstrations(before: Harness, after: Harness) -> list[Edit]:
    old, new = before.demonstrations, after.demonstrations
    if old == new:
        return []
    if new[: len(old)] == old:
        return [Edit(Op.APPEND, DEMONSTRATIONS, content=item.line()) for item in new[len(old) :]]
    text = "".join(f"{item.line()}\n" for item in new)
    return [Edit(Op.SET, DEMONSTRATIONS, content=text)]


def _between_skills(before: Harness, after: Harness) -> list[Edit]:
    old = {skill.name: skill for skill in before.skills}
    new = {skill.name: skill for skill in after.skills}
    edits = [Edit(Op.DELETE, SKILLS, name) for name in old if name not in new]
    edits += [skill_edit(skill) for name, skill in new.items() if name not in old]
    for name in (name for name in new if name in old):
        component = skill_file(name)
        if old[name].description != new[name].description:
            edits.append(Edit(Op.SET, component, DESCRIPTION, new[name].description))
        edits += _between_texts(component, old[name].body, new[name].body)
    return edits


def skill_edit(skill: Skill) -> Edit:
    """Adds the skill."""
    record = {
        "name": skill.name,
        "description": skill.description,
        "body": skill.body,
        **skill.extra,
    }
    return Edit(Op.APPEND, SKILLS, content=json.dumps(record, ensure_ascii=False))


def _between_files(before: Harness, after: Harness) -> list[Edit]:
    old = {path: text for path, text in before.files.items() if REFERENCE_FILE.fullmatch(path)}
    new = {path: text for path, text in after.files.items() if REFERENCE_FILE.fullmatch(path)}
    kept_skills = {skill.name for skill in after.skills}
    edits = [
        Edit(Op.DELETE, path)
        for path in old
        if path not in new and path.split("/")[1] in kept_skills
    ]
    edits += [
        Edit(Op.SET, path, content=text) for path, text in new.items() if old.get(path) != text
    ]
    return edits


def _between_fields(before: Harness, after: Harness) -> list[Edit]:
    old, new = config_fields(before), config_fields(after)
    defaults = config_fields(Harness()) | {
        "model": '""',
        "demonstrations.pick": '"all"',
        "demonstrations.k": "4",
    }
    return [
        Edit(Op.SET, CONFIG, key, new.get(key, defaults[key]))
        for key in {**new, **old}
        if old.get(key) != new.get(key)
    ]


def _between_tools(before: Harness, after: Harness) -> list[Edit]:
    old, new = descriptions_of(before), descriptions_of(after)
    edits = [Edit(Op.DELETE, TOOLS, anchor) for anchor in old if anchor not in new]
    edits += [
        Edit(Op.SET, TOOLS, anchor, text) for anchor, text in new.items() if old.get(anchor) != text
    ]
    return edits


def _carried(before: Sequence[Line], texts: Sequence[str], sha256: str) -> list[Line]:
    """Lines after an edit: those that stayed keep their origin."""
    old = [line.text for line in before]
    lines = [Line(text, sha256) for text in texts]
    for match in SequenceMatcher(None, old, texts, autojunk=False).get_matching_blocks():
        for i in range(match.size):
            lines[match.b + i] = before[match.a + i]
    return lines
