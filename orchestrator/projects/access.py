"""Fetch and authorise in one call. The only module that compares roles.

A stranger gets 404, so that nothing tells whether the object exists; a member without the right
gets 403. Other apps build their own access functions from `require`:

    def run_for_edit(actor: Actor, run_id: int) -> Run:
        run = get_object_or_404(Run.objects.select_related("project"), pk=run_id)
        require(actor, run.project, Role.EDITOR)
        return run
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.shortcuts import get_object_or_404

from orchestrator.projects.audit.record import current
from orchestrator.projects.models import ApiToken, Membership, Project, Role, User

Actor = User | AnonymousUser
"""Who asks. A user that came with a token carries it as `api_token` (see `authentication`)."""

_RANK: dict[str, int] = {Role.VIEWER: 1, Role.EDITOR: 2, Role.ADMIN: 3}


def role_in(actor: Actor, project_id: int) -> Role | None:
    """The actor's role in the project; None for a stranger. A token limits it, never widens it."""
    if not isinstance(actor, User) or not actor.is_active:
        return None
    role: str | None = Role.ADMIN
    if not actor.is_superuser:
        role = (
            Membership.objects.filter(user=actor, project_id=project_id)
            .values_list("role", flat=True)
            .first()
        )
    token: ApiToken | None = getattr(actor, "api_token", None)
    if token is not None and role is not None:
        if token.project_id != project_id:
            return None
        role = min(role, token.role, key=lambda name: _RANK[name])
    return None if role is None else Role(role)


def is_above(role: str, other: str) -> bool:
    """Whether the first may do more than the second."""
    return _RANK[role] > _RANK[other]


def require(actor: Actor, project: Project | int, needed: Role) -> None:
    """Http404 for a stranger, PermissionDenied for a member whose role is below `needed`."""
    project_id = project if isinstance(project, int) else project.pk
    role = role_in(actor, project_id)
    if role is None:
        raise Http404("No such object.")
    if needed != Role.VIEWER and (record := current()) is not None:
        record.project_id = project_id
    if _RANK[role] < _RANK[needed]:
        raise PermissionDenied(f"This needs the role {needed.label} in the project.")


def project_for_view(actor: Actor, project_id: int) -> Project:
    return _project(actor, project_id, Role.VIEWER)


def project_for_edit(actor: Actor, project_id: int) -> Project:
    return _project(actor, project_id, Role.EDITOR)


def project_for_admin(actor: Actor, project_id: int) -> Project:
    return _project(actor, project_id, Role.ADMIN)


def _project(actor: Actor, project_id: int, needed: Role) -> Project:
    token: ApiToken | None = getattr(actor, "api_token", None)
    if token is not None and token.project_id == project_id:
        project = token.project
    else:
        project = get_object_or_404(Project, pk=project_id)
    require(actor, project, needed)
    return project


@dataclass(frozen=True)
class Seen:
    """What the frame of a page asks about its reader."""

    role: Role
    projects: Sequence[Project]
    """All that the reader may see, oldest first."""


def project_for_page(user: Actor, project_id: int) -> tuple[Project, Seen]:
    """`project_for_view` and what the frame needs, in one query: for pages with a bound on them."""
    if not isinstance(user, User) or not user.is_active:
        raise Http404("No such object.")
    if user.is_superuser:
        roles = dict.fromkeys(Project.objects.order_by("pk"), Role.ADMIN)
    else:
        memberships = Membership.objects.filter(user=user).select_related("project")
        roles = {each.project: Role(each.role) for each in memberships.order_by("project_id")}
    for project, role in roles.items():
        if project.pk == project_id:
            return project, Seen(role, tuple(roles))
    raise Http404("No such object.")
