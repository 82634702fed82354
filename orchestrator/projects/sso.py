"""Signing in through an OpenID Connect provider (`requirements/sso.txt`).

django-allauth does the protocol; here is who may come in and under which name. The provider says
who somebody is, Switchback what they may do: a new user belongs to no project until they are
invited. A local user is never taken over by a name or address that the provider tells, since it may
not have checked it.

The identity token comes straight from the provider's token endpoint, so that TLS vouches for it and
its signature is not asked for (OpenID Connect Core 1.0, 3.1.3.7, 6); issuer, audience and time are.
That is why the issuer has to be https (`switchback.E011`).
"""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import get_adapter as get_account_adapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.http import HttpRequest
from django.shortcuts import render

from orchestrator.projects.sso_claims import claims_of, may_enter, username_of


class Adapter(DefaultSocialAccountAdapter):  # type: ignore[misc] # allauth has no types
    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Also for who has come in before: somebody may have left the domain."""
        claims = claims_of(sociallogin.account.extra_data)
        if not may_enter(claims, settings.SSO_DOMAINS):
            raise ImmediateHttpResponse(
                render(request, "registration/sso_refused.html", status=403)
            )

    def populate_user(self, request: HttpRequest, sociallogin: Any, data: dict[str, Any]) -> Any:
        claims = claims_of(sociallogin.account.extra_data)
        name = username_of(claims)
        data["username"] = get_account_adapter(request).generate_unique_username([name])
        return super().populate_user(request, sociallogin, data)
