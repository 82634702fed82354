"""Fetch and authorise re-grades and golden cases."""

from __future__ import annotations

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404

from orchestrator.grading.models import GoldenCase, Regrade
from orchestrator.projects.access import Actor, project_for_edit, project_for_view
from orchestrator.web.rubric_access import rubric_for_edit


def regrade_for_view(actor: Actor, project_id: int, regrade_id: int) -> Regrade:
    project = project_for_view(actor, project_id)
    return get_object_or_404(_regrades(), project=project, pk=regrade_id)


def regrade_for_edit(actor: Actor, project_id: int, regrade_id: int) -> Regrade:
    project = project_for_edit(actor, project_id)
    return get_object_or_404(_regrades(), project=project, pk=regrade_id)


def case_for_edit(actor: Actor, project_id: int, rubric_id: int, case_id: int) -> GoldenCase:
    rubric = rubric_for_edit(actor, project_id, rubric_id)
    return get_object_or_404(GoldenCase.objects.select_related("rubric"), rubric=rubric, pk=case_id)


def _regrades() -> QuerySet[Regrade]:
    return Regrade.objects.select_related(
        "project", "rubric__project", "version__rubric", "job", "stream", "asked_by"
    )
