"""What pages and the API read of models."""

from __future__ import annotations

from django.db.models import QuerySet

from orchestrator.agents.models import ModelEndpoint
from orchestrator.prepared import Prepared

_model = Prepared(
    lambda project, pk: ModelEndpoint.objects.filter(project=project, pk=pk), project=int, pk=int
)


def model_of(project_id: int, pk: int) -> ModelEndpoint | None:
    return _model.first(project=project_id, pk=pk)


def models_of(project_id: int) -> list[ModelEndpoint]:
    return list(ModelEndpoint.objects.filter(project_id=project_id).order_by("name"))


def endpoints_in(project_id: int) -> QuerySet[ModelEndpoint]:
    return ModelEndpoint.objects.filter(project_id=project_id).select_related("project")
