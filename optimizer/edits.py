"""Typed, atomic changes of a harness.

An edit addresses the parsed body of a component, never the raw file, so it cannot break a format:

| component                       | body                       | anchor                         |
|---------------------------------|----------------------------|--------------------------------|
| instructions.md                 | paragraphs                 | a paragraph, or text in one    |
| skills/<name>/SKILL.md          | paragraphs of the body     | the same; `description` to set |
| skills/<name>/references/<file> | paragraphs                 | the same; none to set it whole |
| skills                          | the skills themselves      | name of a skill                |
| demonstrations.jsonl            | demonstrations             | id of a demonstration          |
| demonstrations                  | which are there, and told  | none: `pick`, `k` and `add`    |
| harness.yaml                    | its fields                 | dotted name, for `set`         |
| tools.json                      | descriptions               | `tool` or `tool.parameter`     |

`append` adds at the end, `insert` after the anchor (at the start when it is empty), `replace` and
`delete` act on the anchored item, `set` gives a field or a whole body a new value. Scripts, assets
and evals of a skill cannot be edited: they are code and tests, and people answer for them.

Edits are made for one seed and any set of them without a conflict can be applied to it, each set
giving another harness; search relies on it. Two edits exclude each other

- if they carry the same group,
- if they share an anchor and one of them replaces, deletes or sets it,
- if one sets a whole body and the other sets it too or is anchored in it,
- if both make a demonstration or a skill of one name, or set the same field,
- if one deletes a skill and the other changes it.

New skills come first, then whole bodies, then the rest in the order given. The identity of an edit
is the hash of what it does, not of who proposed it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from optimizer.appliers import DESCRIPTION as DESCRIPTION
from optimizer.appliers import POOL as POOL
from optimizer.appliers import REFERENCE_FILE, applier
from optimizer.appliers import SKILLS as SKILLS
from optimizer.appliers import Op as Op
from optimizer.canonical import read_json, unstorable
from optimizer.configuration import CONFIG
from optimizer.errors import EditInvalid, HarnessInvalid
from optimizer.harness import DEMONSTRATIONS, INSTRUCTIONS, SKILL_FILE, Demonstration, Harness
from optimizer.paragraphs import paragraphs as paragraphs


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

    @property
    def is_whole(self) -> bool:
        """Sets a whole body."""
        return self.op is Op.SET and not self.anchor

    @cached_property
    def names(self) -> frozenset[str]:
        """Of the demonstrations or skills that it makes; only one edit can make a name."""
        if self.op is Op.DELETE or self.component not in (DEMONSTRATIONS, POOL, SKILLS):
            return frozenset()
        texts = self.content.split("\n") if self.component == DEMONSTRATIONS else [self.content]
        records = [_read(text) for text in texts]
        if self.component == POOL:
            added = [record.get("add") for record in records if isinstance(record, dict)]
            records = [item for items in added if isinstance(items, list) for item in items]
        key = "name" if self.component == SKILLS else "id"
        return frozenset(
            f"{key}:{record.get(key)}" for record in records if isinstance(record, dict)
        )

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
    if _deletes_skill_of(a, b) or _deletes_skill_of(b, a):
        return True
    if a.names & b.names:
        return True
    if a.component == b.component == CONFIG and _overlap(a.anchor, b.anchor):
        return True
    if {a.component, b.component} == {CONFIG, POOL}:
        return _overlap(a.anchor or POOL, b.anchor or POOL)
    if a.component != b.component:
        return False
    if a.is_whole or b.is_whole:
        return _is_in_body(a) and _is_in_body(b)
    if a.anchor != b.anchor or not a.anchor:
        return False
    final = (Op.REPLACE, Op.DELETE, Op.SET)
    return a.op in final or b.op in final


def _is_in_body(edit: Edit) -> bool:
    """Sets the whole body or is anchored in what was there before."""
    if SKILL_FILE.fullmatch(edit.component) and edit.op is Op.SET and edit.anchor == DESCRIPTION:
        return False
    return edit.is_whole or bool(edit.anchor) or edit.op is Op.DELETE


def _overlap(a: str, b: str) -> bool:
    """Two fields of harness.yaml are the same, or one is inside the other."""
    return f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.")


def _read(text: str) -> Any:
    """The value in JSON; None for what is none: whoever applies the edit says what is wrong."""
    try:
        return read_json(text)
    except ValueError:
        return None


def _deletes_skill_of(a: Edit, b: Edit) -> bool:
    return (
        a.component == SKILLS
        and a.op is Op.DELETE
        and b.component.startswith(f"skills/{a.anchor}/")
    )


def apply_edits(harness: Harness, edits: Iterable[Edit]) -> Harness:
    """The harness with all edits applied: new skills, whole bodies, then the rest as given.

    Raises EditInvalid if two exclude each other, if an anchor is missing or ambiguous, or if the
    result is not a valid harness.
    """
    chosen = list(edits)
    for members in conflict_groups(chosen):
        if len(members) > 1:
            names = ", ".join(chosen[i].short for i in members)
            raise EditInvalid(f"edits exclude each other: {names}")
    for edit in in_order(chosen):
        harness = apply_edit(harness, edit)
    return harness


def in_order(edits: Iterable[Edit]) -> list[Edit]:
    """As they are applied."""

    def rank(edit: Edit) -> int:
        if edit.component == SKILLS and edit.op is Op.APPEND:
            return 0
        return 1 if edit.is_whole else 2

    return sorted(edits, key=rank)


def apply_edit(harness: Harness, edit: Edit) -> Harness:
    """Raises EditInvalid."""
    for what, text in (("anchor", edit.anchor), ("content", edit.content)):
        if problem := unstorable(text):
            raise EditInvalid(f"{edit.component}: the {what} has {problem}")
    try:
        return applier(edit)(harness, edit)
    except HarnessInvalid as error:
        raise EditInvalid(f"{edit.component}: {error}") from error


def demonstration_edit(item: Demonstration, **provenance: Any) -> Edit:
    """The edit that appends a demonstration."""
    return Edit(Op.APPEND, DEMONSTRATIONS, content=item.line(), **provenance)


def with_whole_anchor(harness: Harness, edit: Edit) -> Edit:
    """The same edit, anchored by the whole paragraph instead of some words of it.

    Edits that mean one paragraph in different words are then seen to exclude each other, and a
    paragraph that another edit adds cannot make the anchor ambiguous. An edit whose anchor is in no
    paragraph, or in several, comes back as it is.
    """
    text = body_text(harness, edit.component)
    if text is None or not edit.anchor or edit.op is Op.SET:
        return edit
    blocks = paragraphs(text)
    found = [block for block in blocks if edit.anchor in block]
    if edit.anchor in blocks or len(found) != 1:
        return edit
    return replace(edit, anchor=found[0])


def body_text(harness: Harness, component: str) -> str | None:
    """The text whose paragraphs an edit of the component acts on; None where it has none."""
    if component == INSTRUCTIONS:
        return harness.instructions
    if SKILL_FILE.fullmatch(component):
        name = component.split("/")[1]
        return next((skill.body for skill in harness.skills if skill.name == name), None)
    return harness.files.get(component) if REFERENCE_FILE.fullmatch(component) else None
