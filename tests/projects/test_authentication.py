"""`Authorization: Bearer …`, through the authentication class that the REST API uses."""

from __future__ import annotations

import pytest
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request
from rest_framework.test import APIRequestFactory

from orchestrator.projects.access import role_in
from orchestrator.projects.authentication import ApiTokenAuthentication
from orchestrator.projects.models import ApiToken, Role
from orchestrator.projects.services import issue_token, revoke_token
from tests.base import People


def request(header: str | None) -> Request:
    given = APIRequestFactory().get("/")
    if header is not None:
        given.META["HTTP_AUTHORIZATION"] = header
    return Request(given)


def test_a_token_signs_in_its_user_with_its_role(people: People) -> None:
    issued = issue_token(
        actor=people.owner, project_id=people.project.pk, name="ci", role=Role.EDITOR
    )
    signed_in = ApiTokenAuthentication().authenticate(request(f"Bearer {issued.secret}"))
    assert signed_in is not None
    user, token = signed_in
    assert (user, token) == (people.owner, issued.token)
    assert role_in(user, people.project.pk) is Role.EDITOR
    assert ApiToken.objects.get().last_used_at is not None


def test_what_is_no_valid_token_is_refused(people: People) -> None:
    issued = issue_token(
        actor=people.owner, project_id=people.project.pk, name="ci", role=Role.VIEWER
    )
    assert ApiTokenAuthentication().authenticate(request(None)) is None
    assert ApiTokenAuthentication().authenticate(request("Basic YTpi")) is None
    for header in ("Bearer", "Bearer a b", "Bearer swb_guess"):
        with pytest.raises(AuthenticationFailed):
            ApiTokenAuthentication().authenticate(request(header))
    revoke_token(actor=people.owner, token_id=issued.token.pk)
    with pytest.raises(AuthenticationFailed, match="revoked"):
        ApiTokenAuthentication().authenticate(request(f"Bearer {issued.secret}"))
