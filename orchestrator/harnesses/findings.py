"""What the linter says of a whole harness, for its page, and how large it is. Pure.

Checks that need an edit or the tasks (does it change anything, does it copy a held-out task) are
left to searches, which have both.
"""

from __future__ import annotations

from dataclasses import dataclass

from optimizer.findings import Finding
from optimizer.harness import Harness
from optimizer.lint_harness import lint_harness
from optimizer.skills import estimated_tokens


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
    found = [Found(finding.component, finding) for finding in lint_harness(harness)]
    return sorted(found, key=lambda each: (each.finding.severity, each.path))
