"""Fetch and authorise drafts and what belongs to them. All of it is for editors."""

from __future__ import annotations

from django.http import Http404
from django.shortcuts import get_object_or_404

from orchestrator.environments.authoring.queries import draft_of, draft_task, version_numbered
from orchestrator.environments.models import (
    DraftTask,
    Environment,
    EnvironmentDraft,
    EnvironmentVersion,
    TaskUpload,
)
from orchestrator.projects.access import Actor, project_for_edit, project_for_view


def environment_for_edit(actor: Actor, project_id: int, slug: str) -> Environment:
    project = project_for_edit(actor, project_id)
    return get_object_or_404(
        Environment.objects.select_related("project"), project=project, slug=slug
    )


def draft_for_edit(actor: Actor, project_id: int, slug: str) -> EnvironmentDraft:
    draft = draft_of(environment_for_edit(actor, project_id, slug))
    if draft is None:
        raise Http404("This environment has no draft: it was published or discarded.")
    return draft


def draft_task_for_edit(
    actor: Actor, project_id: int, slug: str, key: str
) -> tuple[EnvironmentDraft, DraftTask | None]:
    """The task is None where somebody deleted it: a form that still shows it must keep its text."""
    draft = draft_for_edit(actor, project_id, slug)
    return draft, draft_task(draft, key)


def upload_for_edit(actor: Actor, project_id: int, slug: str, upload_id: int) -> TaskUpload:
    draft = draft_for_edit(actor, project_id, slug)
    return get_object_or_404(
        TaskUpload.objects.select_related("draft__environment__project", "created_by"),
        draft=draft,
        pk=upload_id,
    )


def version_for_view(
    actor: Actor, project_id: int, slug: str, number: int
) -> EnvironmentVersion | None:
    project = project_for_view(actor, project_id)
    environment = get_object_or_404(Environment, project=project, slug=slug)
    return version_numbered(environment, number)
