"""What the linter of edits says of a whole harness, as if each text were one edit. Pure.

Checks that need an edit or the tasks (does it change anything, does it copy a held-out task) are
left to searches, which have both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from optimizer.edits import Edit, Op
from optimizer.harness import INSTRUCTIONS, Harness
from optimizer.lint import Finding, lint
from optimizer.skills import estimated_tokens

_OF_EDITS = frozenset({"same", "invalid", "empty", "protected"})
"""Codes that say something of an edit and nothing of a text."""


@dataclass(frozen=True)
class Sizes:
    """Estimated tokens."""

    prompt: int
    """Told to every rollout before its task."""
    on_demand: int
    """Bodies and references of skills, read when the agent asks."""


@dataclass(frozen=True)
class Found:
    path: str
    finding: Finding


def sizes_of(harness: Harness) -> Sizes:
    told = harness.messages("")[:-1]
    read = [skill.told for skill in harness.skills]
    read += [text for path, text in harness.files.items() if "/references/" in path]
    return Sizes(
        prompt=sum(estimated_tokens(message["content"]) for message in told),
        on_demand=sum(map(estimated_tokens, read)),
    )


def findings_of(harness: Harness) -> list[Found]:
    """Errors first, then by file; each once."""
    found: dict[tuple[str, str, str], Found] = {}
    for edit in _as_edits(harness):
        for finding in lint(edit, harness):
            if finding.code not in _OF_EDITS:
                key = (edit.component, finding.code, finding.message)
                found.setdefault(key, Found(edit.component, finding))
    return sorted(found.values(), key=lambda each: (each.finding.severity, each.path))


def _as_edits(harness: Harness) -> Iterator[Edit]:
    if harness.instructions.strip():
        yield Edit(Op.SET, INSTRUCTIONS, content=harness.instructions)
    for skill in harness.skills:
        component = f"skills/{skill.name}/SKILL.md"
        yield Edit(Op.SET, component, content=skill.body)
        yield Edit(Op.SET, component, anchor="description", content=skill.description)
