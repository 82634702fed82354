from __future__ import annotations

import platform
from datetime import timedelta

import django
from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_POST

from orchestrator.projects.access import project_for_edit, project_for_view, role_in
from orchestrator.projects.models import Role
from orchestrator.projects.scopes import SCOPES
from orchestrator.projects.services import issue_token, revoke_token
from orchestrator.web import queries
from orchestrator.web.frame import Crumb, page
from orchestrator.web.health import signs

_RANK = (Role.VIEWER, Role.EDITOR, Role.ADMIN)


LIFETIMES = {"7": "7 days", "30": "30 days", "90": "90 days", "365": "a year", "": "no end"}


class TokenForm(forms.Form):
    name = forms.CharField(max_length=100, label="Name")
    role = forms.ChoiceField(label="Role")
    days = forms.ChoiceField(
        label="Lasts", choices=list(LIFETIMES.items()), initial="90", required=False
    )
    scopes = forms.MultipleChoiceField(
        label="Limited to", choices=list(SCOPES.items()), required=False
    )

    def __init__(self, own_role: Role, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        allowed = _RANK[: _RANK.index(own_role) + 1]
        self.fields["role"].choices = [(role.value, role.label) for role in allowed]  # type: ignore[attr-defined]


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def project_settings(request: HttpRequest, project_id: int) -> HttpResponse:
    """Members, tokens and what runs here. A POST makes a token, whose secret is shown this once."""
    if request.method == "POST":
        project = project_for_edit(request.user, project_id)
    else:
        project = project_for_view(request.user, project_id)
    role = role_in(request.user, project_id)
    assert role is not None
    form = TokenForm(role, request.POST if request.method == "POST" else None)
    issued = None
    if form.is_bound and form.is_valid():
        issued = issue_token(
            actor=request.user,  # type: ignore[arg-type] # login_required
            project_id=project.pk,
            name=form.cleaned_data["name"],
            role=Role(form.cleaned_data["role"]),
            scopes=form.cleaned_data["scopes"],
            lifetime=timedelta(days=int(days)) if (days := form.cleaned_data["days"]) else None,
        )
        form = TokenForm(role)
    return page(
        request,
        "web/settings.html",
        project,
        "settings",
        [Crumb("Settings")],
        status=422 if form.is_bound else 200,
        members=queries.members_of(project.pk),
        tokens=queries.tokens_of(project.pk),
        form=form,
        issued=issued,
        about=about(),
        all_signs=signs(),
    )


@login_required
@require_POST
def token_revoke(request: HttpRequest, project_id: int, token_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    if not any(token.pk == token_id for token in queries.tokens_of(project.pk)):
        raise Http404("No such object.")
    revoke_token(actor=request.user, token_id=token_id)  # type: ignore[arg-type] # login_required
    messages.success(request, "The token is revoked. Requests with it are refused from now on.")
    return redirect("web:settings", project_id)


def about() -> list[tuple[str, str]]:
    vendor = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}.get(
        connection.vendor, connection.vendor
    )
    return [
        ("Stack", settings.STACK),
        ("Database", vendor),
        ("Data folder", str(settings.DATA_DIR)),
        ("Model", settings.MODEL_NAME),
        ("Lease of a job", f"{settings.JOB_LEASE_S:g} s, beat every {settings.JOB_BEAT_S:g} s"),
        ("Python", platform.python_version()),
        ("Django", django.get_version()),
    ]
