from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass

from django.db import transaction
from django.utils import timezone

from orchestrator.projects.access import project_for_admin, require
from orchestrator.projects.models import ApiToken, Membership, Project, Role, User

TOKEN_PREFIX = "swb_"


@dataclass(frozen=True)
class FirstAdmin:
    user: User
    password: str | None
    """Clear text, to be shown once; None if the user was there already and keeps their password."""


@dataclass(frozen=True)
class IssuedToken:
    token: ApiToken
    secret: str
    """Clear text, to be shown once; only its digest is stored."""


def create_project(*, actor: User, name: str) -> Project:
    """A project with the actor as its admin."""
    with transaction.atomic():
        project = Project.objects.create(name=name)
        Membership.objects.create(project=project, user=actor, role=Role.ADMIN)
    return project


def create_first_admin(*, username: str = "admin") -> FirstAdmin:
    """An operator with a random password. Safe to call twice: the second call changes nothing."""
    password = secrets.token_urlsafe(12)
    with transaction.atomic():
        user, is_new = User.objects.get_or_create(
            username=username, defaults={"is_staff": True, "is_superuser": True}
        )
        if is_new:
            user.set_password(password)
            user.save(update_fields=["password"])
    return FirstAdmin(user=user, password=password if is_new else None)


def set_member(*, actor: User, project_id: int, user: User, role: Role) -> Membership:
    """Adds the user to the project, or changes their role. Only for admins of the project."""
    project = project_for_admin(actor, project_id)
    membership, _ = Membership.objects.update_or_create(
        project=project, user=user, defaults={"role": role}
    )
    return membership


def issue_token(*, actor: User, project_id: int, name: str, role: Role) -> IssuedToken:
    """A token for the project, at most with the actor's own role."""
    require(actor, project_id, role)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        project_id=project_id,
        user=actor,
        name=name,
        role=role,
        prefix=secret[:12],
        digest=token_digest(secret),
    )
    return IssuedToken(token=token, secret=secret)


def revoke_token(*, actor: User, token_id: int) -> bool:
    """Ends the token; False if it had ended before. Owners may end their own, admins any."""
    token = ApiToken.objects.filter(pk=token_id).first()
    if token is None or token.user_id != actor.pk:
        require(actor, token.project_id if token else 0, Role.ADMIN)
    ended = ApiToken.objects.filter(pk=token_id, revoked_at=None).update(revoked_at=timezone.now())
    return ended == 1


def token_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
