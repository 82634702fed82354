"""API tokens: made, listed, revoked. The secret of one is told once."""

from __future__ import annotations

import datetime
from datetime import timedelta
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import paging
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    api_url,
    created,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.errors import Conflict
from orchestrator.api.shapes import page_of
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import ApiToken, Role
from orchestrator.projects.queries import tokens_in
from orchestrator.projects.scopes import SCOPES
from orchestrator.projects.services import issue_token, revoke_token

MAX_DAYS = 3650


class TokenAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    name: str
    prefix: Annotated[str, "How its secret begins."]
    user: Annotated[str, "In whose name it acts."]
    role: str
    scopes: Annotated[list[str], "Empty: all that the role allows."]
    created_at: datetime.datetime
    expires_at: datetime.datetime | None
    last_used_at: datetime.datetime | None
    revoked_at: datetime.datetime | None


class IssuedTokenAnswer(TokenAnswer):
    secret: Annotated[str, "What requests carry; told this once."]


class NewToken(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=100)
    role = serializers.ChoiceField(Role.choices, default=Role.VIEWER)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(list(SCOPES)),
        default=list,
        max_length=len(SCOPES),
        help_text="What it is limited to; none: all that the role allows.",
    )
    days = serializers.IntegerField(
        min_value=1,
        max_value=MAX_DAYS,
        default=90,
        allow_null=True,
        help_text="How long it lasts; null: until it is revoked.",
    )


class Tokens(Endpoint):
    area = "project"

    @operation(page_of(TokenAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The tokens of a project, newest first, revoked ones too."""
        project = project_for_view(request.user, project_id)
        return Response(
            paging.paged(
                request,
                tokens_in(project.pk),
                lambda rows: [token_answer(request, row) for row in rows],
                html_url=page_url(request, "settings", project.pk),
            )
        )

    @operation(IssuedTokenAnswer, body=NewToken, status=201, says="Made.")
    def post(self, request: Request, project_id: int) -> Response:
        """A token in the caller's name, at most as wide as the caller. Editors.

        No `Idempotency-Key`: an answer that can be given again would have to be kept, and its
        secret with it.
        """
        project = project_for_edit(request.user, project_id)
        asked = read(NewToken, request.data)
        issued = issue_token(
            actor=actor_of(request),
            project_id=project.pk,
            name=asked["name"],
            role=Role(asked["role"]),
            scopes=asked["scopes"],
            lifetime=None if asked["days"] is None else timedelta(days=asked["days"]),
        )
        told = token_answer(request, issued.token)
        answer: IssuedTokenAnswer = {**told, "secret": issued.secret}
        return created(request, answer, answer["url"])


class TokenDetail(Endpoint):
    area = "project"

    @operation(TokenAnswer)
    def get(self, request: Request, project_id: int, token_id: int) -> Response:
        """One token, without its secret."""
        project = project_for_view(request.user, project_id)
        return Response(token_answer(request, found(tokens_in(project.pk), pk=token_id)))

    @operation(None, status=204, says="Revoked; requests with it are refused from now on.")
    def delete(self, request: Request, project_id: int, token_id: int) -> Response:
        """Revokes one's own; anybody's as an admin."""
        project = project_for_view(request.user, project_id)
        token = found(tokens_in(project.pk), pk=token_id)
        if not revoke_token(actor=actor_of(request), token_id=token.pk):
            raise Conflict("The token was revoked before.")
        return Response(status=204)


def token_answer(request: Request, token: ApiToken) -> TokenAnswer:
    return {
        "id": token.pk,
        "url": api_url(request, "token", token.project_id, token.pk),
        "html_url": page_url(request, "settings", token.project_id),
        "name": token.name,
        "prefix": token.prefix,
        "user": token.user.get_username(),
        "role": token.role,
        "scopes": list(token.scopes),
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "last_used_at": token.last_used_at,
        "revoked_at": token.revoked_at,
    }
