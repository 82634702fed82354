from __future__ import annotations

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import PermissionDenied
from django.http import Http404

from orchestrator.projects.access import (
    project_for_admin,
    project_for_edit,
    project_for_view,
    role_in,
)
from orchestrator.projects.models import Role
from orchestrator.projects.queries import projects_of
from orchestrator.projects.services import issue_token
from tests.base import People, make_user


def test_a_member_may_view(people: People) -> None:
    assert project_for_view(people.member, people.project.pk) == people.project


def test_a_viewer_may_not_edit(people: People) -> None:
    with pytest.raises(PermissionDenied):
        project_for_edit(people.member, people.project.pk)


def test_an_editor_may_edit_but_not_administer(people: People) -> None:
    assert project_for_edit(people.editor, people.project.pk) == people.project
    with pytest.raises(PermissionDenied):
        project_for_admin(people.editor, people.project.pk)


@pytest.mark.parametrize("fetch", [project_for_view, project_for_edit, project_for_admin])
def test_a_stranger_learns_nothing(people: People, fetch) -> None:  # type: ignore[no-untyped-def] # three functions of one shape
    for actor in (people.stranger, AnonymousUser()):
        with pytest.raises(Http404):
            fetch(actor, people.project.pk)


def test_an_inactive_member_is_a_stranger(people: People) -> None:
    people.owner.is_active = False
    assert role_in(people.owner, people.project.pk) is None
    assert not projects_of(people.owner).exists()


def test_an_operator_sees_everything(people: People) -> None:
    operator = make_user(is_superuser=True)
    assert role_in(operator, people.project.pk) is Role.ADMIN
    assert projects_of(operator).count() == 2


def test_a_token_limits_the_right_to_its_role_and_project(people: People) -> None:
    issued = issue_token(
        actor=people.owner, project_id=people.project.pk, name="ci", role=Role.VIEWER
    )
    other = people.stranger.memberships.get().project_id
    people.owner.is_superuser = True
    people.owner.api_token = issued.token  # type: ignore[attr-defined] # as the authentication does
    assert role_in(people.owner, people.project.pk) is Role.VIEWER
    assert role_in(people.owner, other) is None
    assert list(projects_of(people.owner)) == [people.project]
