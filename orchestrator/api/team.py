"""Invitations, limits and the audit log of a project."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import editing, paging
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
from orchestrator.projects.access import project_for_admin
from orchestrator.projects.audit.queries import audit_rows
from orchestrator.projects.invitations import (
    MAX_DAYS,
    VALID_DAYS,
    invite,
    join_url,
    revoke_invitation,
)
from orchestrator.projects.models import AuditEntry, Invitation, Project, Role, User
from orchestrator.projects.queries import invitations_in
from orchestrator.runs.limits import set_limits, use_today

_BIGGEST = 2**31 - 1


class InvitationAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    role: str
    note: str
    created_by: str
    expires_at: datetime.datetime
    is_used: bool
    is_revoked: bool


class IssuedInvitationAnswer(InvitationAnswer):
    link: Annotated[str, "For the person to open; told this once."]


class LimitsAnswer(TypedDict):
    rollouts_per_day: Annotated[int | None, "Null: no cap."]
    usd_per_day: Annotated[float | None, "On rollouts; null: no cap."]
    rollouts_today: int
    usd_today: float
    html_url: str


class AuditAnswer(TypedDict):
    id: int
    at: datetime.datetime
    user: str
    token: Annotated[str, "Prefix of the API token; empty for a person at a page."]
    action: Annotated[str, "Name of the address."]
    method: str
    path: str
    status: Annotated[int, "Of the answer; 403 is an attempt that the role did not allow."]
    changes: Annotated[
        list[Any], "[{kind, id, label, what, fields: {name: [before, after]}}]; secrets are hidden."
    ]
    request_id: str
    html_url: str


class NewInvitation(serializers.Serializer[Any]):
    role = serializers.ChoiceField(Role.choices)
    note = serializers.CharField(max_length=200, required=False, default="", allow_blank=True)
    days = serializers.IntegerField(
        min_value=1, max_value=MAX_DAYS, required=False, default=VALID_DAYS
    )


class Caps(serializers.Serializer[Any]):
    rollouts_per_day = serializers.IntegerField(min_value=0, max_value=_BIGGEST, allow_null=True)
    usd_per_day = serializers.FloatField(min_value=0, max_value=1e9, allow_null=True)


class Invitations(Endpoint):
    area = "project"

    @operation(page_of(InvitationAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """Links by which people join, used ones too. Admins."""
        project = project_for_admin(request.user, project_id)
        return Response(
            paging.paged(
                request,
                invitations_in(project.pk),
                lambda rows: [_invitation(request, row) for row in rows],
                html_url=page_url(request, "members", project.pk),
            )
        )

    @operation(IssuedInvitationAnswer, body=NewInvitation, status=201, says="Made.")
    def post(self, request: Request, project_id: int) -> Response:
        """A link for one person. Admins.

        No `Idempotency-Key`: an answer that can be given again would have to be kept, and its link
        with it.
        """
        project = project_for_admin(request.user, project_id)
        asked = read(NewInvitation, request.data)
        issued = invite(
            actor=actor_of(request),
            project_id=project.pk,
            role=Role(asked["role"]),
            note=asked["note"],
            days=asked["days"],
        )
        told = _invitation(request, issued.invitation)
        link = request.build_absolute_uri(join_url(issued.secret))
        answer: IssuedInvitationAnswer = {**told, "link": link}
        return created(request, answer, answer["url"])


class InvitationDetail(Endpoint):
    area = "project"

    @operation(InvitationAnswer)
    def get(self, request: Request, project_id: int, invitation_id: int) -> Response:
        """One invitation. Admins."""
        return Response(_invitation(request, _found(request, project_id, invitation_id)))

    @operation(None, status=204, says="Taken back.")
    def delete(self, request: Request, project_id: int, invitation_id: int) -> Response:
        """Takes a link back that nobody has used. Admins."""
        invitation = _found(request, project_id, invitation_id)
        if not revoke_invitation(actor=actor_of(request), invitation=invitation):
            raise Conflict("The link was used or taken back before.")
        return Response(status=204)


class Limits(editing.Settings):
    area = "project"
    body = Caps

    @staticmethod
    def now(request: Request, project: Project) -> LimitsAnswer:
        use = use_today(project.pk)
        return {
            "rollouts_per_day": use.rollouts_cap,
            "usd_per_day": use.usd_cap,
            "rollouts_today": use.rollouts,
            "usd_today": use.usd,
            "html_url": page_url(request, "limits", project.pk),
        }

    @staticmethod
    def put_in_force(actor: User, project: Project, asked: Mapping[str, Any]) -> None:
        set_limits(actor=actor, project_id=project.pk, **asked)

    @operation(LimitsAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """What the project may use in a day (UTC), and what it has used."""
        return self.told(request, project_id)

    @operation(LimitsAnswer, body=Caps, parameters=[editing.PARAMETER])
    def put(self, request: Request, project_id: int) -> Response:
        """Sets both caps. Admins."""
        return self.changed(request, project_id)


class Audit(Endpoint):
    area = "project"

    @operation(page_of(AuditAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """Who changed what, newest first. Admins."""
        project = project_for_admin(request.user, project_id)
        page = page_url(request, "audit", project.pk)
        return Response(
            paging.paged(
                request,
                audit_rows(project.pk),
                lambda rows: [_entry(row, page) for row in rows],
                html_url=page,
            )
        )


def _found(request: Request, project_id: int, invitation_id: int) -> Invitation:
    project = project_for_admin(request.user, project_id)
    rows = invitations_in(project.pk)
    return found(rows, pk=invitation_id)


def _invitation(request: Request, row: Invitation) -> InvitationAnswer:
    return {
        "id": row.pk,
        "url": api_url(request, "invitation", row.project_id, row.pk),
        "html_url": page_url(request, "members", row.project_id),
        "role": row.role,
        "note": row.note,
        "created_by": row.created_by.get_username(),
        "expires_at": row.expires_at,
        "is_used": row.accepted_at is not None,
        "is_revoked": row.revoked_at is not None,
    }


def _entry(row: AuditEntry, page: str) -> AuditAnswer:
    return {
        "id": row.pk,
        "at": row.at,
        "user": row.username,
        "token": row.token_prefix,
        "action": row.action,
        "method": row.method,
        "path": row.path,
        "status": row.status,
        "changes": row.changes,
        "request_id": row.request_id,
        "html_url": page,
    }
