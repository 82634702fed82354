"""Plain factories with keyword overrides, and the people that every permission test starts from."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from orchestrator.projects.models import Membership, Project, Role, User

PASSWORD = "correct-horse-battery"
_numbers = itertools.count(1)


def make_user(**overrides: Any) -> User:
    fields = {"username": f"user{next(_numbers)}", "password": PASSWORD, **overrides}
    return User.objects.create_user(**fields)


def make_project(*, owner: User | None = None, **overrides: Any) -> Project:
    """A project; with `owner` as its admin if given."""
    project = Project.objects.create(**{"name": f"Project {next(_numbers)}", **overrides})
    if owner is not None:
        add_member(project, owner, Role.ADMIN)
    return project


def add_member(project: Project, user: User, role: Role = Role.VIEWER) -> Membership:
    return Membership.objects.create(project=project, user=user, role=role)


@dataclass(frozen=True)
class People:
    project: Project
    owner: User
    """Admin of the project."""
    editor: User
    member: User
    """Viewer of the project."""
    stranger: User
    """Admin of another project."""


def make_people() -> People:
    owner, editor, member, stranger = (
        make_user(username=f"{name}{next(_numbers)}")
        for name in ("owner", "editor", "member", "stranger")
    )
    project = make_project(owner=owner)
    add_member(project, editor, Role.EDITOR)
    add_member(project, member, Role.VIEWER)
    make_project(owner=stranger)
    return People(project=project, owner=owner, editor=editor, member=member, stranger=stranger)
