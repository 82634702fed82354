"""`Authorization: Bearer swb_…` for the REST API.

The request's user is the token's user, with the token attached, so that `access` can limit the
right to the token's project and role.
"""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from orchestrator.prepared import Prepared
from orchestrator.projects.models import ApiToken, User
from orchestrator.projects.services import token_digest

_token = Prepared(
    lambda digest: ApiToken.objects.select_related("user", "project").filter(
        digest=digest, revoked_at=None
    ),
    digest=str,
)
# "Last used" is for people: once a minute spares a write on every request.
_LAST_USED_STEP = timedelta(minutes=1)


class ApiTokenAuthentication(BaseAuthentication):
    def authenticate(self, request: Request) -> tuple[User, ApiToken] | None:
        words = get_authorization_header(request).split()
        if not words or words[0].lower() != b"bearer":
            return None
        if len(words) != 2:
            raise AuthenticationFailed("Write the header as `Authorization: Bearer TOKEN`.")
        digest = token_digest(words[1].decode("latin-1"))
        token = _token.first(digest=digest)
        if token is None or not token.user.is_active:
            raise AuthenticationFailed("This token is unknown or revoked.")
        if token.has_expired:
            raise AuthenticationFailed(
                f"This token expired at {token.expires_at:%Y-%m-%d %H:%M} UTC."
            )
        user = token.user
        user.api_token = token  # type: ignore[attr-defined] # read by projects.access
        now = timezone.now()
        stale = Q(last_used_at=None) | Q(last_used_at__lt=now - _LAST_USED_STEP)
        if token.last_used_at is None or token.last_used_at < now - _LAST_USED_STEP:
            ApiToken.objects.filter(stale, pk=token.pk).update(last_used_at=now)
        return user, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"
