"""Fetch and authorise registrations."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from orchestrator.environments.models import SourceRegistration
from orchestrator.projects.access import Actor, require
from orchestrator.projects.models import Role


def registration_for_view(actor: Actor, registration_id: int) -> SourceRegistration:
    return _registration(actor, registration_id, Role.VIEWER)


def registration_for_edit(actor: Actor, registration_id: int) -> SourceRegistration:
    return _registration(actor, registration_id, Role.EDITOR)


def _registration(actor: Actor, registration_id: int, needed: Role) -> SourceRegistration:
    registration = get_object_or_404(
        SourceRegistration.objects.select_related("project", "job", "version__environment"),
        pk=registration_id,
    )
    require(actor, registration.project, needed)
    return registration
