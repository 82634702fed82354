"""Versions of a rubric in the database: frozen, numbered, one per content."""

from __future__ import annotations

from typing import Any

from rubrics.codec import content_hash, from_json, to_json
from rubrics.models import Rubric, RubricVersion


def create_rubric_version(*, rubric: Rubric, spec: dict[str, Any]) -> RubricVersion:
    """The newest version if it has this content, else a new one. Raises RubricInvalid."""
    parsed = from_json(spec)
    digest = content_hash(parsed)
    newest = rubric.versions.order_by("-number").first()
    if newest is not None and newest.sha256 == digest:
        return newest
    return RubricVersion.objects.create(
        rubric=rubric,
        number=newest.number + 1 if newest else 1,
        spec=to_json(parsed),
        sha256=digest,
    )
