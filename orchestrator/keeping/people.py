"""Names of people that came with a project from elsewhere.

What they wrote stays theirs, under their name, as accounts that cannot sign in: an account of the
same name in this installation may be somebody else.
"""

from __future__ import annotations

import re

from orchestrator.projects.models import User

_MARK = re.compile(r" \(imported #\d+\)$")


def bare_name(username: str) -> str:
    return _MARK.sub("", username)


def stand_in(name: str, project_id: int) -> User:
    """The account under which a name's deeds stand in a project; made where it is not there."""
    mark = f" (imported #{project_id})"
    user, is_new = User.objects.get_or_create(
        username=f"{name[: 150 - len(mark)]}{mark}", defaults={"is_active": False}
    )
    if is_new:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return user
