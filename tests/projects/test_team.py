"""Members and invitations: who may let whom in, once, and that somebody stays to do so."""

from __future__ import annotations

import io
import logging
import re
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from orchestrator.projects.access import role_in
from orchestrator.projects.invitations import (
    InvitationRefused,
    invite,
    join,
    open_invitation,
    revoke_invitation,
    sign_up,
)
from orchestrator.projects.models import ApiToken, AuditEntry, Invitation, Role, User
from orchestrator.projects.services import LastAdmin, issue_token, remove_member, set_member
from tests.base import PASSWORD, People, make_user


def test_a_link_lets_one_person_in_with_its_role(people: People) -> None:
    project = people.project
    issued = invite(actor=people.owner, project_id=project.pk, role=Role.EDITOR, note="Ada")
    assert issued.secret not in str(Invitation.objects.get().__dict__)
    join(user=people.stranger, secret=issued.secret)
    assert role_in(people.stranger, project.pk) is Role.EDITOR
    with pytest.raises(InvitationRefused, match="has been used"):
        join(user=make_user(), secret=issued.secret)


def test_only_admins_invite(people: People) -> None:
    with pytest.raises(PermissionDenied):
        invite(actor=people.editor, project_id=people.project.pk, role=Role.VIEWER)


def test_a_link_that_ended_or_was_taken_back_opens_nothing(people: People) -> None:
    first = invite(actor=people.owner, project_id=people.project.pk, role=Role.VIEWER)
    assert revoke_invitation(actor=people.owner, invitation=first.invitation)
    assert not revoke_invitation(actor=people.owner, invitation=first.invitation)
    with pytest.raises(InvitationRefused, match="taken back"):
        join(user=people.stranger, secret=first.secret)
    second = invite(actor=people.owner, project_id=people.project.pk, role=Role.VIEWER)
    Invitation.objects.filter(pk=second.invitation.pk).update(
        expires_at=timezone.now() - timedelta(seconds=1)
    )
    with pytest.raises(InvitationRefused, match="has ended"):
        open_invitation(second.secret)
    with pytest.raises(InvitationRefused, match="unknown"):
        open_invitation("swi_nothing")


def test_a_link_raises_a_role_and_never_lowers_it(people: People) -> None:
    issued = invite(actor=people.owner, project_id=people.project.pk, role=Role.VIEWER)
    join(user=people.editor, secret=issued.secret)
    assert role_in(people.editor, people.project.pk) is Role.EDITOR


def test_who_signs_up_by_a_link_needs_a_free_name_and_a_good_password(people: People) -> None:
    issued = invite(actor=people.owner, project_id=people.project.pk, role=Role.VIEWER)
    with pytest.raises(ValidationError) as taken:
        sign_up(secret=issued.secret, username=people.owner.username.upper(), password=PASSWORD)
    assert list(taken.value.message_dict) == ["username"]
    with pytest.raises(ValidationError) as short:
        sign_up(secret=issued.secret, username="grace", password="short")
    assert list(short.value.message_dict) == ["password"]
    assert not User.objects.filter(username="grace").exists()
    user = sign_up(secret=issued.secret, username="grace", password="a-long-enough-one")
    assert role_in(user, people.project.pk) is Role.VIEWER


def test_the_last_admin_stays(people: People) -> None:
    with pytest.raises(LastAdmin):
        remove_member(actor=people.owner, project_id=people.project.pk, user=people.owner)
    with pytest.raises(LastAdmin):
        set_member(
            actor=people.owner, project_id=people.project.pk, user=people.owner, role=Role.EDITOR
        )
    set_member(
        actor=people.owner, project_id=people.project.pk, user=people.editor, role=Role.ADMIN
    )
    remove_member(actor=people.owner, project_id=people.project.pk, user=people.owner)
    assert role_in(people.owner, people.project.pk) is None


def test_who_is_removed_loses_their_tokens(people: People) -> None:
    issue_token(actor=people.editor, project_id=people.project.pk, name="ci", role=Role.EDITOR)
    with pytest.raises(PermissionDenied):
        remove_member(actor=people.editor, project_id=people.project.pk, user=people.owner)
    remove_member(actor=people.owner, project_id=people.project.pk, user=people.editor)
    assert ApiToken.objects.get().revoked_at is not None


def test_from_the_page_to_the_link_to_the_project(people: People, client: Client) -> None:
    client.force_login(people.owner)
    members = reverse("web:members", args=[people.project.pk])
    answer = client.post(members, {"note": "Ada", "role": "editor", "days": "3"})
    link = re.search(r"http://testserver(/accounts/join/[^\"<]+)", answer.content.decode())
    assert link is not None
    assert "Ada" in client.get(members).content.decode()
    guest = Client()
    assert guest.get(link[1]).status_code == 200
    assert Invitation.objects.get().accepted_at is None
    refused = guest.post(link[1], {"username": "ada", "password": "1234567890"})
    assert refused.status_code == 422
    entered = guest.post(link[1], {"username": "ada", "password": "a-long-enough-one"}, follow=True)
    assert f"Welcome to {people.project.name}" in entered.content.decode()
    assert role_in(User.objects.get(username="ada"), people.project.pk) is Role.EDITOR
    assert Client().get(link[1]).status_code == 410


def test_the_secret_of_a_link_reaches_neither_log_nor_audit(
    people: People, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    issued = invite(actor=people.owner, project_id=people.project.pk, role=Role.VIEWER)
    client.force_login(people.stranger)
    with caplog.at_level(logging.DEBUG):
        client.post(reverse("join", args=[issued.secret]))
    entry = AuditEntry.objects.get()
    assert entry.project == people.project
    assert issued.secret not in caplog.text + str(entry.__dict__)


def test_an_admin_changes_a_role_and_reads_so_in_the_log(people: People, client: Client) -> None:
    client.force_login(people.owner)
    project = people.project
    client.post(reverse("web:member_role", args=[project.pk, people.editor.pk]), {"role": "viewer"})
    assert role_in(people.editor, project.pk) is Role.VIEWER
    log = client.get(reverse("web:audit", args=[project.pk])).content.decode()
    assert "Member role" in log
    assert "editor" in log
    lines = io.BytesIO(
        b"".join(client.get(reverse("web:audit_file", args=[project.pk])).streaming_content)  # type: ignore[attr-defined]
    )
    assert b'"role": ["editor", "viewer"]' in lines.read()
    client.force_login(people.editor)
    assert client.get(reverse("web:audit", args=[project.pk])).status_code == 403
