"""Joining a project by link.

Whoever has the link joins once, as the user that they are signed in as or as a new one. The secret
in it has 256 random bits and is stored as SHA-256.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from orchestrator.projects import audit
from orchestrator.projects.access import is_above, project_for_admin, require
from orchestrator.projects.models import Invitation, Membership, Role, User
from orchestrator.projects.services import token_digest

INVITATION_PREFIX = "swi_"
VALID_DAYS = 7
MAX_DAYS = 90


class InvitationRefused(ValueError):
    """The link is unknown, used, ended or taken back; the text says which, for people."""


@dataclass(frozen=True)
class IssuedInvitation:
    invitation: Invitation
    secret: str
    """Clear text, to be shown once as a link; only its digest is stored."""


def invite(
    *, actor: User, project_id: int, role: Role, note: str = "", days: int = VALID_DAYS
) -> IssuedInvitation:
    """A link for one person, valid for `days`. Only for admins. Raises ValueError on bad days."""
    project = project_for_admin(actor, project_id)
    if not 1 <= days <= MAX_DAYS:
        raise ValueError(f"An invitation is valid for 1 to {MAX_DAYS} days.")
    secret = INVITATION_PREFIX + secrets.token_urlsafe(32)
    invitation = Invitation.objects.create(
        project=project,
        role=role,
        note=note.strip()[:200],
        prefix=secret[:12],
        digest=token_digest(secret),
        created_by=actor,
        expires_at=timezone.now() + timedelta(days=days),
    )
    return IssuedInvitation(invitation=invitation, secret=secret)


def join_url(secret: str) -> str:
    """The path of the link."""
    return reverse("join", args=[secret])


def revoke_invitation(*, actor: User, invitation: Invitation) -> bool:
    """Takes the link back; False if it was used or taken back before."""
    require(actor, invitation.project_id, Role.ADMIN)
    now = timezone.now()
    ended = Invitation.objects.filter(pk=invitation.pk, revoked_at=None, accepted_at=None).update(
        revoked_at=now
    )
    if ended:
        audit.changed(
            "invitation",
            invitation.pk,
            invitation.note,
            before={"revoked_at": None},
            after={"revoked_at": now},
        )
    return ended == 1


def open_invitation(secret: str) -> Invitation:
    """The invitation of a link. Raises InvitationRefused."""
    invitation = (
        Invitation.objects.select_related("project", "created_by")
        .filter(digest=token_digest(secret))
        .first()
    )
    if invitation is None:
        raise InvitationRefused("This link is unknown. Ask for a new one.")
    if invitation.accepted_at is not None:
        raise InvitationRefused("This link has been used. Each link lets one person join.")
    if invitation.revoked_at is not None:
        raise InvitationRefused("This link was taken back. Ask for a new one.")
    if invitation.expires_at <= timezone.now():
        raise InvitationRefused("This link has ended. Ask for a new one.")
    if not invitation.created_by.is_active:
        raise InvitationRefused("Who made this link has left. Ask an admin for a new one.")
    return invitation


def join(*, user: User, secret: str) -> Membership:
    """Makes the user a member. A role that they have already is raised, never lowered.

    Raises InvitationRefused, also for the second of two who use one link at once.
    """
    with transaction.atomic():
        invitation = open_invitation(secret)
        taken = Invitation.objects.filter(
            pk=invitation.pk, accepted_at=None, revoked_at=None
        ).update(accepted_at=timezone.now(), accepted_by=user)
        if not taken:
            raise InvitationRefused("This link has been used. Each link lets one person join.")
        membership, is_new = Membership.objects.get_or_create(
            project=invitation.project, user=user, defaults={"role": invitation.role}
        )
        if not is_new and is_above(invitation.role, membership.role):
            membership.role = invitation.role
            membership.save(update_fields=["role"])
    if (record := audit.current()) is not None:
        record.project_id = invitation.project_id
    return membership


def sign_up(*, secret: str, username: str, password: str) -> User:
    """A new user who joins by the link.

    Raises InvitationRefused; ValidationError by field (`username`, `password`).
    """
    username = username.strip()
    with transaction.atomic():
        open_invitation(secret)
        if User.objects.filter(username__iexact=username).exists():
            raise ValidationError({"username": "This name is taken. Sign in if it is yours."})
        user = User(username=username)
        try:
            user.full_clean(exclude=["password"])
        except ValidationError as fault:
            raise ValidationError({"username": fault.messages}) from None
        try:
            validate_password(password, user)
        except ValidationError as fault:
            raise ValidationError({"password": fault.messages}) from None
        user.set_password(password)
        user.save()
        join(user=user, secret=secret)
    return user
