"""Whose traces somebody may read or add to."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import PermissionDenied
from django.http import Http404

from orchestrator.projects.access import Actor, project_for_view, require
from orchestrator.projects.models import Project, Role
from orchestrator.traces.models import OutsideRollout
from orchestrator.traces.queries import outside_rollout


def outside_for_view(actor: Actor, project_id: int, name: str) -> OutsideRollout:
    """By the producer's name of the rollout; Http404 if there is none."""
    project_for_view(actor, project_id)
    owner = outside_rollout(project_id, name)
    if owner is None:
        raise Http404("this project has no such imported rollout")
    return owner


def writable_project(actor: Actor) -> Callable[[str], Project | None]:
    """The project that an event names, by name or number, if the actor may write there."""

    def resolve(name: str) -> Project | None:
        wanted = {"pk": int(name)} if name.isdecimal() and len(name) < 16 else {"name": name}
        for project in Project.objects.filter(**wanted)[:20]:
            try:
                require(actor, project, Role.EDITOR)
            except (Http404, PermissionDenied):
                continue
            return project
        return None

    return resolve
