"""What pages read of models."""

from __future__ import annotations

from orchestrator.agents.models import ModelEndpoint


def models_of(project_id: int) -> list[ModelEndpoint]:
    return list(ModelEndpoint.objects.filter(project_id=project_id).order_by("name"))
