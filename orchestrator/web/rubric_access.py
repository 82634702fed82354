"""Fetch and authorise rubrics and their drafts."""

from __future__ import annotations

from django.http import Http404
from django.shortcuts import get_object_or_404

from orchestrator.grading.models import RubricDraft
from orchestrator.grading.queries import draft_of
from orchestrator.projects.access import Actor, project_for_edit, project_for_view
from rubrics.models import Rubric


def rubric_for_view(actor: Actor, project_id: int, rubric_id: int) -> Rubric:
    project = project_for_view(actor, project_id)
    return get_object_or_404(
        Rubric.objects.select_related("project"), project=project, pk=rubric_id
    )


def rubric_for_edit(actor: Actor, project_id: int, rubric_id: int) -> Rubric:
    project = project_for_edit(actor, project_id)
    return get_object_or_404(
        Rubric.objects.select_related("project"), project=project, pk=rubric_id
    )


def draft_for_edit(actor: Actor, project_id: int, rubric_id: int) -> RubricDraft:
    draft = draft_of(rubric_for_edit(actor, project_id, rubric_id))
    if draft is None:
        raise Http404("This rubric has no draft: it was published or discarded.")
    return draft
