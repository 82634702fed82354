from __future__ import annotations

from django.db.models import QuerySet

from orchestrator.projects.access import Actor
from orchestrator.projects.models import ApiToken, Invitation, Membership, Project, User


def projects_of(actor: Actor) -> QuerySet[Project]:
    """The projects that the actor may see, oldest first."""
    if not isinstance(actor, User) or not actor.is_active:
        return Project.objects.none()
    projects = Project.objects.all()
    if not actor.is_superuser:
        projects = projects.filter(memberships__user=actor)
    token = getattr(actor, "api_token", None)
    return projects if token is None else projects.filter(pk=token.project_id)


def members_of(project_id: int) -> QuerySet[Membership]:
    return Membership.objects.filter(project_id=project_id).select_related("user")


def invitations_in(project_id: int) -> QuerySet[Invitation]:
    """Used and ended ones too."""
    return Invitation.objects.filter(project_id=project_id).select_related("created_by")


def tokens_in(project_id: int) -> QuerySet[ApiToken]:
    return ApiToken.objects.filter(project_id=project_id).select_related("user")


def project_to_change(project_id: int) -> Project:
    """Locked until the end of the transaction."""
    return Project.objects.select_for_update().get(pk=project_id)


def active_users() -> QuerySet[User]:
    """Of the whole installation."""
    return User.objects.filter(is_active=True)
