from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from django.db import transaction
from django.utils import timezone

from orchestrator.projects import audit
from orchestrator.projects.access import project_for_admin, require
from orchestrator.projects.models import ApiToken, Membership, Project, Role, User
from orchestrator.projects.scopes import SCOPES

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


def rename_project(*, actor: User, project: Project, name: str) -> None:
    require(actor, project, Role.ADMIN)
    project.name = name
    project.save(update_fields=["name"])


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


class LastAdmin(ValueError):
    """A project keeps at least one admin, else nobody could let others in."""

    def __init__(self) -> None:
        super().__init__("This is the project's only admin. Make somebody else an admin first.")


def set_member(*, actor: User, project_id: int, user: User, role: Role) -> Membership:
    """Adds the user to the project, or changes their role. Only for admins of the project.

    Raises LastAdmin.
    """
    project = project_for_admin(actor, project_id)
    with transaction.atomic():
        if role != Role.ADMIN:
            _keep_an_admin(project_id, user)
        membership, _ = Membership.objects.update_or_create(
            project=project, user=user, defaults={"role": role}
        )
    return membership


def remove_member(*, actor: User, project_id: int, user: User) -> None:
    """Ends the membership and the tokens that the user made here. Admins any, members their own.

    Raises LastAdmin.
    """
    require(actor, project_id, Role.VIEWER if actor == user else Role.ADMIN)
    with transaction.atomic():
        _keep_an_admin(project_id, user)
        for membership in Membership.objects.filter(project_id=project_id, user=user):
            membership.delete()
        for token in ApiToken.objects.filter(project_id=project_id, user=user, revoked_at=None):
            token.revoked_at = timezone.now()
            token.save(update_fields=["revoked_at"])


def _keep_an_admin(project_id: int, leaving: User) -> None:
    admins = list(
        Membership.objects.select_for_update()
        .filter(project_id=project_id, role=Role.ADMIN)
        .values_list("user_id", flat=True)
    )
    if admins == [leaving.pk]:
        raise LastAdmin


class TokenRefused(ValueError):
    """Nothing was made; `field` is the one to change."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def issue_token(
    *,
    actor: User,
    project_id: int,
    name: str,
    role: Role,
    scopes: Iterable[str] = (),
    lifetime: timedelta | None = None,
) -> IssuedToken:
    """A token for the project, at most with the actor's own role. Raises TokenRefused.

    `scopes`: what it is limited to, see `scopes`; none: all that its role allows. `lifetime`: None
    for one that lasts until it is revoked.
    """
    require(actor, project_id, role)
    scopes = sorted(set(scopes))
    if unknown := [scope for scope in scopes if scope not in SCOPES]:
        raise TokenRefused("scopes", f"{unknown[0]!r} is none of {', '.join(SCOPES)}.")
    own: ApiToken | None = getattr(actor, "api_token", None)
    if own is not None and own.scopes and not (scopes and set(scopes) <= set(own.scopes)):
        raise TokenRefused("scopes", "A token with scopes makes none that has others.")
    now = timezone.now()
    expires_at = None if lifetime is None else now + lifetime
    if expires_at is not None and expires_at <= now:
        raise TokenRefused("lifetime", "A token lasts longer than no time at all.")
    if own is not None and own.expires_at is not None:
        expires_at = min(filter(None, (expires_at, own.expires_at)))
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        project_id=project_id,
        user=actor,
        name=name,
        role=role,
        scopes=scopes,
        expires_at=expires_at,
        prefix=secret[:12],
        digest=token_digest(secret),
    )
    return IssuedToken(token=token, secret=secret)


def revoke_token(*, actor: User, token_id: int) -> bool:
    """Ends the token; False if it had ended before. Owners may end their own, admins any."""
    token = ApiToken.objects.filter(pk=token_id).first()
    if token is None or token.user_id != actor.pk:
        require(actor, token.project_id if token else 0, Role.ADMIN)
    now = timezone.now()
    ended = ApiToken.objects.filter(pk=token_id, revoked_at=None).update(revoked_at=now)
    if token is not None and ended:
        audit.changed(
            "API token",
            token.pk,
            token.name,
            before={"revoked_at": None},
            after={"revoked_at": now},
        )
    return ended == 1


def token_digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
