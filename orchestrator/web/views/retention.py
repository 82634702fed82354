"""Rules of retention, what a look at them found, and keeping things after all."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.keeping.errors import KeepingRefused
from orchestrator.keeping.models import What
from orchestrator.keeping.queries import looks_of, marked, rules_of
from orchestrator.keeping.retention import services
from orchestrator.keeping.retention.kinds import ABOUT
from orchestrator.projects.access import project_for_admin, project_for_edit, project_for_view
from orchestrator.projects.models import Project, User
from orchestrator.projects.storage import amount
from orchestrator.runs.models import Purpose
from orchestrator.web.frame import Crumb, page


class RuleForm(forms.Form):
    what = forms.ChoiceField(choices=What.choices)
    days = forms.IntegerField(min_value=1, max_value=services.MAX_DAYS, initial=90)
    grace_days = forms.IntegerField(min_value=0, max_value=services.MAX_DAYS, initial=7)
    purposes = forms.MultipleChoiceField(choices=Purpose.choices, required=False)


@login_required
@require_safe
def retention(request: HttpRequest, project_id: int) -> HttpResponse:
    return _page(request, project_for_view(request.user, project_id))


@login_required
@require_POST
def retention_rule(request: HttpRequest, project_id: int) -> HttpResponse:
    """Sets a rule; with `remove` takes it away."""
    project = project_for_admin(request.user, project_id)
    form = RuleForm(request.POST)
    if "remove" in request.POST:
        rule = rules_of(project).filter(what=request.POST.get("what", "")).first()
        if rule is not None:
            services.remove_rule(actor=_user(request), rule=rule)
            messages.success(request, "The rule is gone. What it had marked stays.")
        return redirect("web:retention", project.pk)
    if not form.is_valid():
        return _page(request, project, form=form)
    try:
        services.set_rule(actor=_user(request), project=project, **form.cleaned_data)
    except KeepingRefused as refusal:
        form.add_error(None, str(refusal))
        return _page(request, project, form=form)
    messages.success(request, "The rule holds from the next daily look. Try it dry first.")
    return redirect("web:retention", project.pk)


@login_required
@require_POST
def retention_look(request: HttpRequest, project_id: int) -> HttpResponse:
    """Dry, unless `apply` is sent."""
    project = project_for_admin(request.user, project_id)
    try:
        services.start_look(
            actor=_user(request), project=project, is_dry="apply" not in request.POST
        )
    except KeepingRefused as refusal:
        messages.error(request, str(refusal))
    return redirect("web:retention", project.pk)


@login_required
@require_POST
def retention_keep(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    count = services.keep(actor=_user(request), project=project)
    messages.success(request, f"{count:,} things stay, whatever the rules say.")
    return redirect("web:retention", project.pk)


@login_required
@require_POST
def retention_let_go(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_admin(request.user, project_id)
    count = services.let_go(actor=_user(request), project=project)
    messages.success(request, f"{count:,} things are for the rules again.")
    return redirect("web:retention", project.pk)


def _page(request: HttpRequest, project: Project, form: RuleForm | None = None) -> HttpResponse:
    looks = list(looks_of(project)[:10])
    return page(
        request,
        "web/retention.html",
        project,
        "settings",
        [Crumb("Settings", reverse("web:settings", args=[project.pk])), Crumb("Retention")],
        status=422 if form is not None else 200,
        rules=[(rule, ABOUT[rule.what]) for rule in rules_of(project).order_by("what")],
        form=form or RuleForm(),
        kinds=[(value, label, ABOUT[value]) for value, label in What.choices],
        purposes=Purpose.choices,
        marked=marked(project),
        looks=[(look, [_found(each) for each in look.found]) for look in looks],
        is_open=any(not look.has_ended for look in looks),
    )


def _found(found: dict[str, Any]) -> dict[str, Any]:
    return {
        **found,
        "label": What(found["what"]).label,
        "size": amount(found["due_bytes"]),
        "removed_size": amount(found["removed_bytes"]),
        "reasons": sorted(found["protected"].items()),
    }


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User), "login_required"
    return request.user
