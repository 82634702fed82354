"""The door for who has an invitation: join as who you are, or as somebody new."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth import login
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from orchestrator.projects.invitations import (
    InvitationRefused,
    open_invitation,
    sign_up,
)
from orchestrator.projects.invitations import (
    join as join_by,
)
from orchestrator.projects.models import User

_GONE = 410


@sensitive_post_parameters("password")
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def join(request: HttpRequest, secret: str) -> HttpResponse:
    """GET shows what the link is for and changes nothing; POST joins."""
    try:
        invitation = open_invitation(secret)
        errors: dict[str, list[str]] = {}
        if request.method == "POST":
            try:
                return _joined(request, secret)
            except ValidationError as fault:
                errors = fault.message_dict
    except InvitationRefused as refusal:
        return render(request, "registration/join.html", {"refusal": str(refusal)}, status=_GONE)
    return render(
        request,
        "registration/join.html",
        {
            "invitation": invitation,
            "errors": errors,
            "username": request.POST.get("username", ""),
            "next": request.path,
        },
        status=422 if errors else 200,
    )


def _joined(request: HttpRequest, secret: str) -> HttpResponse:
    if isinstance(request.user, User):
        user = request.user
        membership = join_by(user=user, secret=secret)
    else:
        user = sign_up(
            secret=secret,
            username=request.POST.get("username", "")[:150],
            password=request.POST.get("password", "")[:1000],
        )
        membership = user.memberships.get()
        login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    messages.success(request, f"Welcome to {membership.project.name}.")
    return redirect("web:overview", membership.project_id)
