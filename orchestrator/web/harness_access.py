"""Fetch and authorise harnesses and releases, always inside the project of the address."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from optimizer.models import HarnessVersion, Release
from orchestrator.projects.access import Actor, project_for_edit, project_for_view


def harness_for_view(actor: Actor, project_id: int, harness_id: int) -> HarnessVersion:
    project = project_for_view(actor, project_id)
    return get_object_or_404(
        HarnessVersion.objects.select_related("project"), project=project, pk=harness_id
    )


def harness_for_edit(actor: Actor, project_id: int, harness_id: int) -> HarnessVersion:
    project = project_for_edit(actor, project_id)
    return get_object_or_404(
        HarnessVersion.objects.select_related("project"), project=project, pk=harness_id
    )


def release_for_edit(actor: Actor, project_id: int, release_id: int) -> Release:
    project = project_for_edit(actor, project_id)
    return get_object_or_404(
        Release.objects.select_related("environment", "harness"), project=project, pk=release_id
    )
