"""Who belongs to a project: members, their roles, invitations by link."""

from __future__ import annotations

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from orchestrator.projects.access import project_for_admin, project_for_view
from orchestrator.projects.invitations import (
    MAX_DAYS,
    VALID_DAYS,
    invite,
    join_url,
    revoke_invitation,
)
from orchestrator.projects.models import Role
from orchestrator.projects.services import LastAdmin, remove_member, set_member
from orchestrator.web import access, queries
from orchestrator.web.frame import Crumb, page


class InvitationForm(forms.Form):
    note = forms.CharField(max_length=200, required=False)
    role = forms.ChoiceField(choices=Role.choices)
    days = forms.IntegerField(min_value=1, max_value=MAX_DAYS, initial=VALID_DAYS)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def members(request: HttpRequest, project_id: int) -> HttpResponse:
    """The list; an admin's POST makes an invitation, whose link is shown this once."""
    is_made = request.method == "POST"
    find = project_for_admin if is_made else project_for_view
    project = find(request.user, project_id)
    form = InvitationForm(request.POST if is_made else None)
    link = ""
    if is_made and form.is_valid():
        issued = invite(
            actor=request.user,  # type: ignore[arg-type] # login_required
            project_id=project.pk,
            role=Role(form.cleaned_data["role"]),
            note=form.cleaned_data["note"],
            days=form.cleaned_data["days"],
        )
        link = request.build_absolute_uri(join_url(issued.secret))
        form = InvitationForm()
    return page(
        request,
        "web/members.html",
        project,
        "settings",
        [Crumb("Settings", reverse("web:settings", args=[project.pk])), Crumb("Members")],
        status=422 if form.is_bound else 200,
        members=queries.members_of(project.pk),
        invitations=queries.invitations_of(project.pk),
        roles=Role.choices,
        form=form,
        link=link,
        valid_days=VALID_DAYS,
        max_days=MAX_DAYS,
    )


@login_required
@require_POST
def member_role(request: HttpRequest, project_id: int, user_id: int) -> HttpResponse:
    membership = access.membership_for_admin(request.user, project_id, user_id)
    role = request.POST.get("role", "")
    if role not in Role.values:
        messages.error(request, "Choose one of the roles.")
        return redirect("web:members", project_id)
    try:
        set_member(
            actor=request.user,  # type: ignore[arg-type] # login_required
            project_id=project_id,
            user=membership.user,
            role=Role(role),
        )
    except LastAdmin as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, f"{membership.user.username} is {Role(role).label.lower()} now.")
    return redirect("web:members", project_id)


@login_required
@require_POST
def member_remove(request: HttpRequest, project_id: int, user_id: int) -> HttpResponse:
    """Admins remove anybody, members themselves."""
    membership = access.membership_for_view(request.user, project_id, user_id)
    try:
        remove_member(
            actor=request.user,  # type: ignore[arg-type] # login_required
            project_id=project_id,
            user=membership.user,
        )
    except LastAdmin as refusal:
        messages.error(request, str(refusal))
        return redirect("web:members", project_id)
    if membership.user == request.user:
        messages.success(request, "You have left the project.")
        return redirect("web:home")
    messages.success(
        request, f"{membership.user.username} is no member any more; their tokens here are revoked."
    )
    return redirect("web:members", project_id)


@login_required
@require_POST
def invitation_revoke(request: HttpRequest, project_id: int, invitation_id: int) -> HttpResponse:
    invitation = access.invitation_for_admin(request.user, project_id, invitation_id)
    if revoke_invitation(actor=request.user, invitation=invitation):  # type: ignore[arg-type]
        messages.success(request, "The link is taken back. Nobody can join with it any more.")
    else:
        messages.error(request, "The link was used or taken back before.")
    return redirect("web:members", project_id)
