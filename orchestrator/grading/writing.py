"""The text of a rubric that previews and golden cases are about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.grading.queries import draft_of, versions_of
from rubrics.models import Rubric


@dataclass(frozen=True)
class Writing:
    spec: Mapping[str, Any] | None
    title: str


def writing_of(rubric: Rubric) -> Writing:
    """The draft; without one the newest version."""
    draft = draft_of(rubric)
    if draft is not None:
        return Writing(draft.spec, "draft")
    versions = versions_of(rubric)
    return Writing(versions[0].spec, f"v{versions[0].number}") if versions else Writing(None, "")
