"""A person's mark from the calibration page: of a rollout, outside of any queue."""

from __future__ import annotations

from django.db import transaction

from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.review.errors import ReviewRefused
from orchestrator.review.models import Annotation
from orchestrator.review.scales import scales_of
from orchestrator.review.splits import is_held_out
from orchestrator.runs.models import Rollout
from rubrics.models import RubricVersion

LONGEST_NOTE = 2000


def label(
    *,
    actor: User,
    rollout: Rollout,
    version: RubricVersion,
    criterion: str,
    said: str,
    note: str = "",
) -> Annotation:
    """The actor's mark, new or changed. `said` as in `scales`. Raises ReviewRefused."""
    project_id = version.rubric.project_id
    require(actor, project_id, Role.EDITOR)
    if rollout.run.project_id != project_id:
        raise ReviewRefused("The rollout is not of this project.")
    scale = next((s for s in scales_of(version.spec) if s.id == criterion), None)
    if scale is None:
        raise ReviewRefused(f"{version} has no criterion {criterion!r}.")
    try:
        state, value = scale.read(said)
    except ValueError as exc:
        raise ReviewRefused(f"{exc}.") from exc
    note = note.replace("\x00", "␀").encode("utf-8", "replace").decode().strip()
    if len(note) > LONGEST_NOTE:
        raise ReviewRefused(f"The note accepts {LONGEST_NOTE:,} characters, got {len(note):,}.")
    with transaction.atomic():
        mark, _ = Annotation.objects.update_or_create(
            rollout=rollout,
            rubric=version.rubric,
            criterion=criterion,
            user=actor,
            item=None,
            defaults={
                "rubric_version": version,
                "state": state,
                "value": value,
                "note": note,
                "is_held_out": is_held_out(rollout.pk),
            },
        )
    return mark
