"""Projects, their members, and who asks."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, TypedDict

from django.db import transaction
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import editing, idempotency, paging
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    api_url,
    chosen,
    created,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.shapes import page_of
from orchestrator.projects.access import project_for_admin, project_for_view, role_in
from orchestrator.projects.models import Membership, Project, Role
from orchestrator.projects.queries import (
    active_users,
    members_of,
    project_to_change,
    projects_of,
)
from orchestrator.projects.services import (
    create_project,
    remove_member,
    rename_project,
    set_member,
)


class ProjectAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    name: str
    role: Annotated[str, "What the caller may do here: viewer, editor or admin."]
    created_at: datetime.datetime


class MemberAnswer(TypedDict):
    id: Annotated[int, "Of the user."]
    url: str
    user: Annotated[str, "Name that the user signs in with."]
    role: str
    since: datetime.datetime
    html_url: str


class TokenTold(TypedDict):
    name: str
    prefix: str
    project: Annotated[int, "Its id: a token is of one project."]
    role: str
    scopes: Annotated[list[str], "Empty: all that the role allows."]
    expires_at: datetime.datetime | None


class MeAnswer(TypedDict):
    user: str
    html_url: str
    token: Annotated[TokenTold | None, "Null for a session of the browser."]


class NewProject(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=100)


class NewMember(serializers.Serializer[Any]):
    user = serializers.CharField(max_length=150, help_text="Name that the user signs in with.")
    role = serializers.ChoiceField(Role.choices)


class Me(Endpoint):
    area = "project"

    @operation(MeAnswer)
    def get(self, request: Request) -> Response:
        """Who asks, and what the token may do. The first call of a program that has a token."""
        user = actor_of(request)
        token = getattr(user, "api_token", None)
        told: TokenTold | None = None
        if token is not None:
            told = {
                "name": token.name,
                "prefix": token.prefix,
                "project": token.project_id,
                "role": token.role,
                "scopes": token.scopes,
                "expires_at": token.expires_at,
            }
        answer: MeAnswer = {
            "user": user.get_username(),
            "html_url": page_url(request, "home"),
            "token": told,
        }
        return Response(answer)


class Projects(Endpoint):
    area = "project"

    @operation(page_of(ProjectAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request) -> Response:
        """The projects that the caller belongs to; with a token, its own."""
        return Response(
            paging.paged(
                request,
                projects_of(request.user),
                lambda projects: [project_answer(request, project) for project in projects],
                html_url=page_url(request, "home"),
                newest_first=False,
            )
        )

    @operation(
        ProjectAnswer, body=NewProject, parameters=[idempotency.PARAMETER], status=201, says="Made."
    )
    def post(self, request: Request) -> Response:
        """A project with the caller as its admin. Not with a token, which is of one project."""
        user = actor_of(request)
        if getattr(user, "api_token", None) is not None:
            raise PermissionDenied("A token is of one project and makes no other; sign in.")
        asked = read(NewProject, request.data)

        def make() -> Response:
            project = create_project(actor=user, name=asked["name"])
            answer = project_answer(request, project)
            return created(request, answer, answer["url"])

        return idempotency.once(request, make)


class ProjectDetail(Endpoint):
    area = "project"

    @operation(ProjectAnswer)
    def get(self, request: Request, project_id: int) -> Response:
        """One project."""
        project = project_for_view(request.user, project_id)
        return editing.tagged(request, project_answer(request, project), {"name": project.name})

    @operation(ProjectAnswer, body=NewProject, parameters=[editing.PARAMETER])
    def patch(self, request: Request, project_id: int) -> Response:
        """Renames it. Admins."""
        project = project_for_admin(request.user, project_id)
        asked = read(NewProject, request.data)
        with transaction.atomic():
            project = project_to_change(project.pk)
            editing.require_match(request, {"name": project.name})
            rename_project(actor=actor_of(request), project=project, name=asked["name"])
        return editing.tagged(request, project_answer(request, project), {"name": project.name})


class Members(Endpoint):
    area = "project"

    @operation(page_of(MemberAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """Who belongs to the project."""
        project = project_for_view(request.user, project_id)
        return Response(
            paging.paged(
                request,
                members_of(project.pk),
                lambda members: [member_answer(request, member) for member in members],
                html_url=page_url(request, "members", project.pk),
                newest_first=False,
            )
        )

    @operation(MemberAnswer, body=NewMember)
    def post(self, request: Request, project_id: int) -> Response:
        """Adds a user of this installation, or changes their role. Admins."""
        project = project_for_admin(request.user, project_id)
        asked = read(NewMember, request.data)
        user = chosen(active_users(), "user", username=asked["user"])
        member = set_member(
            actor=actor_of(request), project_id=project.pk, user=user, role=Role(asked["role"])
        )
        return Response(member_answer(request, member))


class MemberDetail(Endpoint):
    area = "project"

    @operation(MemberAnswer)
    def get(self, request: Request, project_id: int, user_id: int) -> Response:
        """One member."""
        project = project_for_view(request.user, project_id)
        return Response(member_answer(request, found(members_of(project.pk), user_id=user_id)))

    @operation(None, status=204, says="No member any more; the tokens they made here are revoked.")
    def delete(self, request: Request, project_id: int, user_id: int) -> Response:
        """Removes anybody as an admin, else oneself."""
        project = project_for_view(request.user, project_id)
        member = found(members_of(project.pk), user_id=user_id)
        remove_member(actor=actor_of(request), project_id=project.pk, user=member.user)
        return Response(status=204)


def project_answer(request: Request, project: Project) -> ProjectAnswer:
    role = role_in(request.user, project.pk)
    assert role is not None, "only projects that the caller may see are told"
    return {
        "id": project.pk,
        "url": api_url(request, "project", project.pk),
        "html_url": page_url(request, "overview", project.pk),
        "name": project.name,
        "role": role.value,
        "created_at": project.created_at,
    }


def member_answer(request: Request, member: Membership) -> MemberAnswer:
    return {
        "id": member.user_id,
        "url": api_url(request, "member", member.project_id, member.user_id),
        "user": member.user.get_username(),
        "role": member.role,
        "since": member.created_at,
        "html_url": page_url(request, "members", member.project_id),
    }
