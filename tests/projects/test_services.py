from __future__ import annotations

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.test import Client
from django.urls import reverse

from orchestrator.projects.access import role_in
from orchestrator.projects.models import ApiToken, Role, User
from orchestrator.projects.services import (
    create_first_admin,
    create_project,
    issue_token,
    revoke_token,
    set_member,
    token_digest,
)
from tests.base import PASSWORD, People, make_user


@pytest.mark.django_db
def test_the_first_admin_gets_a_password_once() -> None:
    first = create_first_admin(username="ada")
    assert first.password is not None
    assert User.objects.get(username="ada").check_password(first.password)
    again = create_first_admin(username="ada")
    assert again.password is None
    assert User.objects.get(username="ada").check_password(first.password)


@pytest.mark.django_db
def test_whoever_creates_a_project_is_its_admin() -> None:
    user = make_user()
    assert role_in(user, create_project(actor=user, name="Hill").pk) is Role.ADMIN


def test_only_admins_set_members(people: People) -> None:
    set_member(
        actor=people.owner, project_id=people.project.pk, user=people.stranger, role=Role.EDITOR
    )
    assert role_in(people.stranger, people.project.pk) is Role.EDITOR
    with pytest.raises(PermissionDenied):
        set_member(
            actor=people.editor, project_id=people.project.pk, user=people.editor, role=Role.ADMIN
        )


def test_a_token_is_stored_hashed_and_never_above_its_maker(people: People) -> None:
    issued = issue_token(
        actor=people.editor, project_id=people.project.pk, name="ci", role=Role.EDITOR
    )
    row = ApiToken.objects.get()
    assert row.digest == token_digest(issued.secret)
    assert issued.secret not in str(row.__dict__)
    with pytest.raises(PermissionDenied):
        issue_token(actor=people.editor, project_id=people.project.pk, name="x", role=Role.ADMIN)
    with pytest.raises(Http404):
        issue_token(actor=people.stranger, project_id=people.project.pk, name="x", role=Role.VIEWER)


def test_a_token_ends_once_and_only_by_those_who_may(people: People) -> None:
    token = issue_token(
        actor=people.editor, project_id=people.project.pk, name="ci", role=Role.VIEWER
    ).token
    with pytest.raises(PermissionDenied):
        revoke_token(actor=people.member, token_id=token.pk)
    with pytest.raises(Http404):
        revoke_token(actor=people.stranger, token_id=token.pk)
    assert revoke_token(actor=people.owner, token_id=token.pk)
    assert not revoke_token(actor=people.owner, token_id=token.pk)


def test_signing_in_needs_the_password(people: People) -> None:
    client, given = Client(), {"username": people.owner.username}
    assert client.post(reverse("login"), {**given, "password": "guess"}).status_code == 200
    assert client.post(reverse("login"), {**given, "password": PASSWORD}).status_code == 302
