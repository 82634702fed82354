"""Models of a project: the installation's own server and other endpoints. Keys are write-only."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, TypedDict

from django.conf import settings
from django.db import transaction
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.agents.queries import endpoints_in
from orchestrator.agents.services import (
    NewEndpoint,
    add_bundled_endpoint,
    add_endpoint,
    choose_judge,
    remove_endpoint,
)
from orchestrator.api import editing, paging
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    api_url,
    conflicts,
    created,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.shapes import page_of
from orchestrator.projects.access import project_for_edit, project_for_view


class ModelAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    name: str
    kind: Annotated[
        str,
        "local: the model server here, which trains; tinker: a server that trains and samples; "
        "openai: text in, text out.",
    ]
    base_url: str
    model: Annotated[str, "As the endpoint calls it."]
    has_key: Annotated[bool, "A key is kept, encrypted, and never shown."]
    is_judge: Annotated[bool, "Asked by criteria that name no model."]
    price_in_usd_per_mtok: float
    price_out_usd_per_mtok: float
    created_at: datetime.datetime


class NewModel(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    base_url = serializers.CharField(max_length=400, help_text="With or without a final `/v1`.")
    model = serializers.CharField(max_length=200)
    kind = serializers.ChoiceField(
        choices=[EndpointKind.OPENAI.value, EndpointKind.TINKER.value],
        default=EndpointKind.OPENAI.value,
        help_text="Which protocol it speaks.",
    )
    tokenizer_path = serializers.CharField(
        max_length=400,
        default="",
        allow_blank=True,
        help_text="Of `tinker`: a folder on the workers' host with tokenizer.json and config.json; "
        "empty: the bundled model's.",
    )
    api_key = serializers.CharField(
        max_length=1000, default="", allow_blank=True, write_only=True, help_text="Never shown."
    )
    price_in_usd_per_mtok = serializers.FloatField(min_value=0, max_value=10**6, default=0.0)
    price_out_usd_per_mtok = serializers.FloatField(min_value=0, max_value=10**6, default=0.0)


class ModelChange(serializers.Serializer[Any]):
    is_judge = serializers.BooleanField()


class Models(Endpoint):
    area = "models"

    @operation(page_of(ModelAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The models of a project, in the order they were added."""
        project = project_for_view(request.user, project_id)
        return Response(
            paging.paged(
                request,
                endpoints_in(project.pk),
                lambda rows: [model_answer(request, row) for row in rows],
                html_url=page_url(request, "models", project.pk),
                newest_first=False,
            )
        )

    @operation(ModelAnswer, body=NewModel, status=201, says="It has answered, and is kept.")
    def post(self, request: Request, project_id: int) -> Response:
        """Adds an endpoint of another server that answers. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(NewModel, request.data)
        endpoint = add_endpoint(actor=actor_of(request), project=project, new=NewEndpoint(**asked))
        answer = model_answer(request, endpoint)
        return created(request, answer, answer["url"])


class BundledModel(Endpoint):
    area = "models"

    @operation(ModelAnswer, says="Safe to send twice.")
    def put(self, request: Request, project_id: int) -> Response:
        """Adds the model server of this installation. Editors."""
        project = project_for_edit(request.user, project_id)
        endpoint = add_bundled_endpoint(
            actor=actor_of(request), project=project, model=settings.MODEL_NAME
        )
        return Response(model_answer(request, endpoint))


class ModelDetail(Endpoint):
    area = "models"

    @operation(ModelAnswer)
    def get(self, request: Request, project_id: int, model_id: int) -> Response:
        """One model."""
        project = project_for_view(request.user, project_id)
        return told(request, found(endpoints_in(project.pk), pk=model_id))

    @operation(ModelAnswer, body=ModelChange, parameters=[editing.PARAMETER])
    def patch(self, request: Request, project_id: int, model_id: int) -> Response:
        """Makes it the project's judge, or no longer. Editors."""
        project = project_for_edit(request.user, project_id)
        with transaction.atomic():
            endpoint = found(endpoints_in(project.pk).select_for_update(of=("self",)), pk=model_id)
            asked = read(ModelChange, request.data)
            editing.require_match(request, {"is_judge": endpoint.is_judge})
            choose_judge(actor=actor_of(request), endpoint=endpoint, is_judge=asked["is_judge"])
            endpoint.refresh_from_db()
        return told(request, endpoint)

    @operation(None, status=204, says="Gone.")
    def delete(self, request: Request, project_id: int, model_id: int) -> Response:
        """Only while no run names it. Editors."""
        project = project_for_edit(request.user, project_id)
        endpoint = found(endpoints_in(project.pk), pk=model_id)
        with conflicts():
            remove_endpoint(actor=actor_of(request), endpoint=endpoint)
        return Response(status=204)


def told(request: Request, endpoint: ModelEndpoint) -> Response:
    editable = {"is_judge": endpoint.is_judge}
    return editing.tagged(request, model_answer(request, endpoint), editable)


def model_answer(request: Request, endpoint: ModelEndpoint) -> ModelAnswer:
    return {
        "id": endpoint.pk,
        "url": api_url(request, "model", endpoint.project_id, endpoint.pk),
        "html_url": page_url(request, "models", endpoint.project_id),
        "name": endpoint.name,
        "kind": endpoint.kind,
        "base_url": endpoint.base_url,
        "model": endpoint.model,
        "has_key": bool(endpoint.secret),
        "is_judge": endpoint.is_judge,
        "price_in_usd_per_mtok": endpoint.price_in_usd_per_mtok,
        "price_out_usd_per_mtok": endpoint.price_out_usd_per_mtok,
        "created_at": endpoint.created_at,
    }
