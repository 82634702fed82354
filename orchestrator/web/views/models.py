"""Models of a project: endpoints that answer, one of them the judge."""

from __future__ import annotations

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from orchestrator.agents.queries import models_of
from orchestrator.agents.services import (
    EndpointRefused,
    NewEndpoint,
    add_bundled_endpoint,
    add_endpoint,
    choose_judge,
    remove_endpoint,
)
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.web import access
from orchestrator.web.frame import Crumb, page


class EndpointForm(forms.Form):
    name = forms.CharField(
        max_length=120, label="Name", help_text="How criteria, runs and climbs call it."
    )
    base_url = forms.CharField(
        max_length=400,
        label="Address",
        help_text="Of an OpenAI-compatible server, for instance https://api.example.org/v1.",
    )
    model = forms.CharField(max_length=200, label="Model", help_text="Its name on that server.")
    api_key = forms.CharField(
        max_length=400,
        required=False,
        label="API key",
        help_text="Kept encrypted, sent to this address alone.",
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )
    price_in = forms.FloatField(
        min_value=0, required=False, label="USD per million tokens in", initial=0
    )
    price_out = forms.FloatField(
        min_value=0, required=False, label="USD per million tokens out", initial=0
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def model_list(request: HttpRequest, project_id: int) -> HttpResponse:
    """The list, with the form that adds one. An endpoint is asked before it is kept."""
    form = EndpointForm(request.POST or None)
    if request.method == "POST":
        project = project_for_edit(request.user, project_id)
        if form.is_valid():
            given = form.cleaned_data
            try:
                endpoint = add_endpoint(
                    actor=request.user,  # type: ignore[arg-type] # login_required
                    project=project,
                    new=NewEndpoint(
                        name=given["name"].strip(),
                        base_url=given["base_url"],
                        model=given["model"].strip(),
                        api_key=given["api_key"],
                        price_in_usd_per_mtok=given["price_in"] or 0.0,
                        price_out_usd_per_mtok=given["price_out"] or 0.0,
                    ),
                )
            except EndpointRefused as refused:
                form.add_error(refused.field, str(refused))
            else:
                messages.success(request, f"{endpoint.name} answers and is kept.")
                return redirect("web:models", project_id)
    else:
        project = project_for_view(request.user, project_id)
    found = models_of(project.pk)
    return page(
        request,
        "web/models.html",
        project,
        "settings",
        [Crumb("Settings", reverse("web:settings", args=[project_id])), Crumb("Models")],
        status=422 if form.is_bound else 200,
        models=found,
        form=form,
        bundled=settings.MODEL_NAME,
        has_bundled=any(model.kind == "local" and not model.base_url for model in found),
    )


@login_required
@require_POST
def model_bundled(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    endpoint = add_bundled_endpoint(
        actor=request.user,  # type: ignore[arg-type] # login_required
        project=project,
        model=settings.MODEL_NAME,
    )
    messages.success(request, f"{endpoint.name} is a model of this project.")
    return redirect("web:models", project_id)


@login_required
@require_POST
def model_change(request: HttpRequest, project_id: int, model_id: int, action: str) -> HttpResponse:
    """`judge`, `no-judge` or `remove`."""
    endpoint = access.model_for_edit(request.user, project_id, model_id)
    actor = request.user
    try:
        if action == "remove":
            remove_endpoint(actor=actor, endpoint=endpoint)  # type: ignore[arg-type]
            messages.success(request, f"{endpoint.name} is removed.")
        else:
            choose_judge(actor=actor, endpoint=endpoint, is_judge=action == "judge")  # type: ignore[arg-type]
            said = "is" if action == "judge" else "is no longer"
            messages.success(request, f"{endpoint.name} {said} the judge of this project.")
    except EndpointRefused as refused:
        messages.error(request, str(refused))
    return redirect("web:models", project_id)
