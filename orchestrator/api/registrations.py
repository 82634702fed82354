"""Sources that must be prepared and proved before they are an environment."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, idempotency, paging, steering
from orchestrator.api.base import api_url, operation, page_url
from orchestrator.api.shapes import page_of
from orchestrator.environments.models import SourceRegistration
from orchestrator.environments.packages.queries import registrations_in
from orchestrator.environments.packages.services import (
    KINDS_BY_REGISTRATION,
    cancel_registration,
    register_source,
)
from orchestrator.projects.models import Project, User


class RegistrationAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    name: str
    kind: str
    state: str
    has_ended: bool
    step: Annotated[str, "What is done at the moment."]
    message: Annotated[str, "Why it failed and what to do."]
    environment: Annotated[str | None, "Slug of what it became."]
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class NewRegistration(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    kind = serializers.ChoiceField([kind.value for kind in KINDS_BY_REGISTRATION])
    resources = serializers.DictField(default=dict, help_text="Of a server.")
    description = serializers.CharField(
        default="", allow_blank=True, max_length=20_000, help_text="What the agent is told first."
    )
    # `source` is an attribute of every field of DRF, and so no name for a declared one.

    def get_fields(self) -> dict[str, Any]:
        fields = super().get_fields()
        fields["source"] = serializers.DictField(
            help_text="As docs/how-to/bring-an-environment.md says for the kind."
        )
        return fields


class _Registration(steering.Steered):
    area = "environments"

    @staticmethod
    def work_in(project: Project) -> Any:
        return registrations_in(project.pk)

    @staticmethod
    def told(request: Request, work: Any) -> Mapping[str, Any]:
        return registration_answer(request, work)


class Registrations(steering.Listing, _Registration):
    list_page = "environments"

    @staticmethod
    def planned(actor: User, project: Project, asked: Mapping[str, Any]) -> Any:
        return lambda: register_source(actor=actor, project=project, **asked)

    @operation(page_of(RegistrationAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """Sources on their way to becoming an environment, newest first."""
        return self.listed(request, project_id)

    @operation(
        RegistrationAnswer,
        body=NewRegistration,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; the environment is there once real episodes have started.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Prepares a package, an image or a disk. Editors."""
        return self.started(request, project_id, NewRegistration)


class RegistrationDetail(steering.Detail, _Registration):
    @operation(RegistrationAnswer)
    def get(self, request: Request, project_id: int, registration_id: int) -> Response:
        """How far one source is."""
        return self.answered(request, project_id, registration_id)


class RegistrationEvents(steering.Events, _Registration):
    @staticmethod
    def page(request: Request, work: Any) -> str:
        return page_url(request, "registration", work.project_id, work.pk)

    @following.documented
    def get(self, request: Request, project_id: int, registration_id: int) -> HttpResponseBase:
        """What it has told so far, or as it tells it."""
        return self.answered(request, project_id, registration_id)


class RegistrationAction(steering.Action, _Registration):
    subject = "registration"
    actions = {"cancel": cancel_registration}

    @operation(RegistrationAnswer, status=202, says="Done, or under way.")
    def post(
        self, request: Request, project_id: int, registration_id: int, action: str
    ) -> Response:
        """Stops it; what was installed half-way is removed. Editors."""
        return self.done(request, project_id, registration_id, action)


def registration_answer(request: Request, row: SourceRegistration) -> RegistrationAnswer:
    where = (row.project_id, row.pk)
    return {
        "id": row.pk,
        "url": api_url(request, "registration", *where),
        "html_url": page_url(request, "registration", *where),
        "events_url": api_url(request, "registration_events", *where),
        "name": row.name,
        "kind": row.kind,
        "state": row.state,
        "has_ended": row.has_ended,
        "step": row.step,
        "message": row.message,
        "environment": None if row.version is None else row.version.environment.slug,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
    }
