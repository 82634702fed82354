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

from orchestrator.agents.models import EndpointKind
from orchestrator.agents.queries import models_of
from orchestrator.agents.services import (
    EndpointRefused,
    NewEndpoint,
    add_bundled_endpoint,
    add_endpoint,
    choose_judge,
    remove_endpoint,
)
from orchestrator.judging.budget import set_limits, spending_today
from orchestrator.projects.access import project_for_admin, project_for_edit, project_for_view
from orchestrator.projects.models import Project
from orchestrator.web import access
from orchestrator.web.frame import Crumb, page

KINDS = [
    (EndpointKind.OPENAI.value, "OpenAI’s chat protocol"),
    (EndpointKind.TINKER.value, "Tinker’s protocol: it can be trained"),
]


class EndpointForm(forms.Form):
    kind = forms.ChoiceField(
        choices=KINDS,
        label="Speaks",
        help_text="Runs of a Tinker server give tokens and log-probabilities, at temperature 0 or "
        "1.",
    )
    name = forms.CharField(
        max_length=120, label="Name", help_text="How criteria, runs and climbs call it."
    )
    base_url = forms.CharField(
        max_length=400,
        label="Address",
        help_text="For instance https://api.example.org/v1.",
    )
    model = forms.CharField(max_length=200, label="Model", help_text="Its name on that server.")
    api_key = forms.CharField(
        max_length=400,
        required=False,
        label="API key",
        help_text="Kept encrypted, sent to this address alone.",
        widget=forms.PasswordInput(attrs={"autocomplete": "off"}),
    )
    tokenizer_path = forms.CharField(
        max_length=400,
        required=False,
        label="Tokenizer folder",
        help_text="For Tinker’s protocol: a folder on this host with tokenizer.json and config.json"
        " of the model; empty: those of the bundled model.",
    )
    price_in = forms.FloatField(
        min_value=0, required=False, label="USD per million tokens in", initial=0
    )
    price_out = forms.FloatField(
        min_value=0, required=False, label="USD per million tokens out", initial=0
    )


class LimitsForm(forms.Form):
    usd_per_day = forms.FloatField(
        min_value=0,
        required=False,
        label="USD a day",
        help_text="By the prices of the endpoints; empty: no cap.",
    )
    tokens_per_day = forms.IntegerField(
        min_value=0,
        max_value=10**15,
        required=False,
        label="Tokens a day",
        help_text="Read and written; empty: no cap. A day ends at 00:00 UTC.",
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
                        kind=given["kind"],
                        tokenizer_path=given["tokenizer_path"].strip(),
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
    return _models_page(request, project, form)


def _models_page(
    request: HttpRequest,
    project: Project,
    form: EndpointForm | None = None,
    limits: LimitsForm | None = None,
) -> HttpResponse:
    found = models_of(project.pk)
    spending = spending_today(project.pk)
    is_bound = any(one is not None and one.is_bound for one in (form, limits))
    return page(
        request,
        "web/models.html",
        project,
        "settings",
        [Crumb("Settings", reverse("web:settings", args=[project.pk])), Crumb("Models")],
        status=422 if is_bound else 200,
        models=found,
        form=form or EndpointForm(),
        spending=spending,
        limits=limits
        or LimitsForm(
            initial={
                "usd_per_day": spending.usd_cap,
                "tokens_per_day": spending.tokens_cap,
            }
        ),
        bundled=settings.MODEL_NAME,
        has_bundled=any(model.kind == "local" and not model.base_url for model in found),
    )


@login_required
@require_POST
def judge_limits(request: HttpRequest, project_id: int) -> HttpResponse:
    """Caps of a day; only admins."""
    project = project_for_admin(request.user, project_id)
    form = LimitsForm(request.POST)
    if not form.is_valid():
        return _models_page(request, project, limits=form)
    set_limits(
        actor=request.user,  # type: ignore[arg-type] # login_required
        project=project,
        usd_per_day=form.cleaned_data["usd_per_day"],
        tokens_per_day=form.cleaned_data["tokens_per_day"],
    )
    messages.success(request, "The caps hold for what judges are asked from now on.")
    return redirect("web:models", project_id)


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
