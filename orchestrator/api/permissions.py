"""What a token may do here, and in what form everybody is answered.

Named in `settings.REST_FRAMEWORK`, so nothing of this module may import views.
"""

from __future__ import annotations

from typing import Any

from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from orchestrator.projects.scopes import allows


class WithinScopes(BasePermission):
    """A token that is limited to scopes does nothing outside them."""

    message = "This token has no scope for that; make one that has, in the project's settings."

    def has_permission(self, request: Request, view: Any) -> bool:
        token = getattr(request.user, "api_token", None)
        if token is None or not token.scopes:
            return True
        return allows(token.scopes, getattr(view, "area", ""), request.method or "")


class JsonOrElse(DefaultContentNegotiation):
    """Answers JSON also to who asks for something else: an error must be readable by anybody."""

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> Any:
        return renderers[0], renderers[0].media_type
