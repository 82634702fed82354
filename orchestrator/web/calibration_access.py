"""Fetch and authorise what the calibration pages work on."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from orchestrator.agents.models import ModelEndpoint
from orchestrator.grading.models import Alignment
from orchestrator.projects.access import Actor
from orchestrator.runs.models import Rollout
from orchestrator.web.rubric_access import rubric_for_edit
from rubrics.models import Rubric


def alignment_for_edit(
    actor: Actor, project_id: int, rubric_id: int, alignment_id: int
) -> tuple[Rubric, Alignment]:
    rubric = rubric_for_edit(actor, project_id, rubric_id)
    rows = Alignment.objects.select_related("version__rubric", "job")
    return rubric, get_object_or_404(rows, version__rubric=rubric, pk=alignment_id)


def endpoint_in(project_id: int, wanted: str) -> ModelEndpoint | None:
    """By the id that a form sent."""
    if not wanted.isdecimal() or len(wanted) > 18:
        return None
    return ModelEndpoint.objects.filter(project_id=project_id, pk=int(wanted)).first()


def rollout_in(project_id: int, wanted: str) -> Rollout | None:
    if not wanted.isdecimal() or len(wanted) > 18:
        return None
    return (
        Rollout.everything.select_related(
            "task",
            "stream",
            "run__rubric_version",
            "run__model",
            "run__environment_version__environment",
        )
        .filter(run__project_id=project_id, pk=int(wanted))
        .first()
    )
