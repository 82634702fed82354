"""What a reflector is asked: one text with everything in it, for a model or a person.

Traces, component texts and rejected edits are data: JSON in which the characters that could end the
frame are escaped, behind a mark made from a secret and the content, so that no agent can know it.
A nudge is a person's word and stands outside of the frame, escaped in the same way.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optimizer.edits import SKILLS, Edit
from optimizer.harness import DEMONSTRATIONS, TOOLS, Harness
from optimizer.operators.evidence import SUCCESS, Trace
from optimizer.reflection import forms
from optimizer.reflection.evidence import cut, shown
from optimizer.reflection.modes import Mode
from optimizer.reflection.sifting import Grave

COMPONENT_CHARS = 24_000
"""Of one component's text."""
EDIT_CHARS = 1_000
"""Of an edit that was rejected or is in already."""
ADDED_CHARS = 200
"""Of an edit that a trace ran with."""
MAX_GRAVES = 30
NUDGE_CHARS = 2_000


@dataclass(frozen=True)
class Reflection:
    """One question; equal ones have equal texts."""

    mode: Mode
    harness: Harness
    """That edits are made for: the seed, or for a rewrite the harness to rewrite."""
    traces: Sequence[Trace] = ()
    components: Sequence[str] = ()
    """That may be changed."""
    max_edits: int = 6
    rewrite: bool = False
    """A whole new text of a component is welcome."""
    already: Sequence[Edit] = ()
    """Edits that the search believes in so far; they need not be proposed again."""
    graves: Sequence[Grave] = ()
    """Edits that were tried and rejected, the newest last."""
    nudges: Sequence[str] = ()
    functions: Sequence[Mapping[str, Any]] = ()
    """Tools as the agent was offered them, where it calls functions."""
    ran_with: Mapping[str, Sequence[Edit]] = field(default_factory=dict)
    """By source of a trace: edits that its harness had beyond the texts of the question."""
    queries: Sequence[Mapping[str, Any]] = ()
    """Of a skill whose description is tuned: what was asked, and how often the skill was loaded."""
    skill: str = ""
    """Its name."""
    success: float = SUCCESS
    room_chars: int = 48_000
    """Of all traces together."""


def question(asked: Reflection, *, secret: bytes) -> str:
    """The text to send. `secret` is of the installation; the mark of the frame hangs on it."""
    body = framed_json(_data(asked))
    mark = hmac.new(secret, f"{asked.mode}\x00{body}".encode(), hashlib.sha256).hexdigest()[:12]
    parts = [
        forms.ROLE,
        forms.task(asked.mode, asked.max_edits, rewrite=asked.rewrite),
        forms.rules(asked.mode, asked.components, rewrite=asked.rewrite),
        *_nudges(asked.nudges),
        f"<data-{mark}>\n{body}\n</data-{mark}>",
        forms.answer(asked.mode),
    ]
    return "\n\n".join(parts)


def schema(asked: Reflection) -> dict[str, Any]:
    """JSON schema of the answer, for endpoints that can be held to one."""
    return forms.schema(asked.mode, asked.components)


def corrected(text: str, reply: str, problem: str) -> str:
    """The question again with what was wrong. The bad reply is quoted in one piece of text, so that
    nothing in it becomes what the reflector has said.
    """
    quoted = framed_json(cut(reply, 300))
    return (
        f"{text}\n\nAn earlier reply could not be used: {framed_json(problem)}. It was: {quoted}. "
        "Reply with one JSON object as described, and nothing else."
    )


def framed_json(data: Any) -> str:
    """JSON text that can close no frame: `<`, `>` and `&` stand there as escapes, which JSON reads
    back as themselves.
    """
    text = json.dumps(data, ensure_ascii=True, indent=1, default=str, allow_nan=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _nudges(nudges: Sequence[str]) -> list[str]:
    if not nudges:
        return []
    said = "\n".join(f"- {framed_json(cut(nudge, NUDGE_CHARS))}" for nudge in nudges)
    return [f"The people who run this search ask you to consider:\n{said}"]


def _data(asked: Reflection) -> dict[str, Any]:
    data: dict[str, Any] = {"components": _components(asked)}
    if asked.functions and asked.mode is not Mode.SKILL:
        data["tools_as_offered"] = [dict(function) for function in asked.functions]
    if asked.already:
        data["edits_in_already"] = [_edit(edit) for edit in asked.already]
    if asked.graves:
        newest = asked.graves[-MAX_GRAVES:]
        data["rejected_edits"] = [
            {**_edit(grave.edit), "why": cut(grave.reason, EDIT_CHARS), "support": grave.support}
            for grave in newest
        ]
        if len(asked.graves) > len(newest):
            data["rejected_edits_left_out"] = len(asked.graves) - len(newest)
    if asked.mode is Mode.TRIGGERS:
        catalogue = {skill.name: skill.description for skill in asked.harness.skills}
        return data | {"skill": asked.skill, "catalogue": catalogue, "queries": [*asked.queries]}
    room = asked.room_chars // max(1, len(asked.traces))
    data["rollouts"] = [_trace(asked, trace, room) for trace in asked.traces]
    return data


def _components(asked: Reflection) -> dict[str, Any]:
    """The texts that may be changed, and the skills by name where one may be added."""
    texts = asked.harness.components()
    skills = {f"skills/{skill.name}/SKILL.md": skill for skill in asked.harness.skills}
    found: dict[str, Any] = {}
    for component in asked.components:
        if component == SKILLS:
            found[SKILLS] = [
                {"name": skill.name, "description": skill.description}
                for skill in asked.harness.skills
            ]
        elif component in skills:
            # In the parts that edits address.
            skill = skills[component]
            body = cut(skill.body, COMPONENT_CHARS)
            found[component] = {"description": skill.description, "body": body}
        elif component == TOOLS:
            found[TOOLS] = [dict(tool) for tool in asked.harness.tools]
        elif component == DEMONSTRATIONS:
            found[DEMONSTRATIONS] = [{"id": item.id} for item in asked.harness.demonstrations]
        else:
            found[component] = cut(texts.get(component, ""), COMPONENT_CHARS)
    return found


def _trace(asked: Reflection, trace: Trace, room: int) -> dict[str, Any]:
    told = shown(trace, room, success=asked.success)
    edits = asked.ran_with.get(trace.source, ())
    if edits:
        told["its_harness_had_also"] = [
            f"{edit.op} {edit.component}: {cut(edit.content, ADDED_CHARS)}" for edit in edits
        ]
    return told


def _edit(edit: Edit) -> dict[str, str]:
    told = {"op": str(edit.op), "component": edit.component}
    if edit.anchor:
        told["anchor"] = cut(edit.anchor, EDIT_CHARS)
    if edit.content:
        told["content"] = cut(edit.content, EDIT_CHARS)
    return told
