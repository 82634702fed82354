"""Fetch and authorise in one call."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from orchestrator.gates.models import Gate
from orchestrator.gates.queries import gates_in
from orchestrator.projects.access import Actor, require
from orchestrator.projects.models import Role


def gate_for_view(actor: Actor, project_id: int, gate_id: int) -> Gate:
    return _gate(actor, project_id, gate_id, Role.VIEWER)


def gate_for_edit(actor: Actor, project_id: int, gate_id: int) -> Gate:
    return _gate(actor, project_id, gate_id, Role.EDITOR)


def _gate(actor: Actor, project_id: int, gate_id: int, needed: Role) -> Gate:
    gate = get_object_or_404(gates_in(project_id).select_related("project"), pk=gate_id)
    require(actor, gate.project, needed)
    return gate
