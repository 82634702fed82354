"""The form that starts a search, and the forecast beside it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from optimizer.harness import Harness
from optimizer.store import store_harness
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project, User
from orchestrator.searches.services import SearchRefused, start_search
from orchestrator.web import access, run_choices
from orchestrator.web.form_fields import missing_choices
from orchestrator.web.frame import Crumb, page
from orchestrator.web.search_forecast import Outlook, outlook
from orchestrator.web.search_form import ENGINE_WORDS, PROPOSER_WORDS, SearchStartForm, like
from orchestrator.web.search_queries import newest_environment

FORECAST = "forecast"
"""Name of the button that works the forecast out without starting anything."""
BUDGET_FIELDS = ("rollouts", "certify_pairs", "twin_pairs")
CAP_FIELDS = (
    *("tokens", "usd", "minutes", "judge_tokens", "judge_usd"),
    *("proposer_tokens", "proposer_usd"),
)
MODEL_FIELDS = ("margin", "model_rollouts", "model_pairs")
MORE_FIELDS = (
    *("alpha", "max_certificates", "cost_weight", "safety", "protected"),
    *("test_replicates", "concurrency"),
)
WHERE = (
    ("The budget", "rollouts"),
    ("The environment", "version"),
    ("The rubric", "rubric"),
    ("Unknown proposers", "proposers"),
    ("proposer_model", "proposer_model"),
    ("safety", "safety"),
    ("engine", "engine"),
    ("search_rollouts", "rollouts"),
    ("train", "version"),
    ("select", "version"),
    ("alpha", "alpha"),
    ("margin", "margin"),
)
"""How a refusal begins -> the field that it is about."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def search_new(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    form = SearchStartForm(
        project, request.POST or None, initial=None if request.POST else _initial(request, project)
    )
    if form.is_bound and form.is_valid() and FORECAST not in request.POST:
        try:
            search = _start(request, project, form)
        except SearchRefused as refused:
            for problem in refused.args[0].split("  "):
                form.add_error(field_of(problem), problem)
        except ValueError as refused:
            form.add_error(field_of(str(refused)), str(refused))
        else:
            messages.success(request, "The search is queued. It begins by watching the seed.")
            return redirect("web:search", project_id, search.pk)
    is_refused = form.is_bound and bool(form.errors)
    return page(
        request,
        "web/search_new.html",
        project,
        "optimise",
        [Crumb("Optimise", reverse("web:searches", args=[project_id])), Crumb("New search")],
        status=422 if is_refused else 200,
        form=form,
        missing=missing_choices(form, "version", "rubric", "model"),
        outlook=_outlook(project, form),
        engine_words=ENGINE_WORDS,
        proposer_words=PROPOSER_WORDS,
        budget_fields=[form[name] for name in BUDGET_FIELDS],
        cap_fields=[form[name] for name in CAP_FIELDS],
        more_fields=[form[name] for name in MORE_FIELDS],
        model_fields=[form[name] for name in MODEL_FIELDS],
        is_more_open=any(
            name in form.errors for name in (*CAP_FIELDS, *MORE_FIELDS, *MODEL_FIELDS)
        ),
        FORECAST=FORECAST,
    )


@login_required
@require_safe
def search_forecast(request: HttpRequest, project_id: int) -> HttpResponse:
    """A fragment: what the form in the address would cost, and the least that it can show."""
    project = project_for_edit(request.user, project_id)
    form = SearchStartForm(project, request.GET)
    return render(request, "web/parts/forecast.html", {"outlook": _outlook(project, form)})


def _start(request: HttpRequest, project: Project, form: SearchStartForm) -> Any:
    harness = form.cleaned_data["harness"] or store_harness(
        project_id=project.pk, harness=Harness(), label="plain"
    )
    assert isinstance(request.user, User)  # login_required
    return start_search(actor=request.user, project=project, form=form.asked(harness))


def _outlook(project: Project, form: SearchStartForm) -> Outlook | None:
    """None while the form cannot say what is asked for."""
    if form.is_bound:
        if not form.is_valid():
            return None
        data = form
    else:
        data = SearchStartForm(project, _as_sent(form))
        if not data.is_valid():
            return None
    try:
        settings = data.settings()
    except ValueError:
        return None
    given = data.cleaned_data
    return outlook(
        version=given["version"],
        rubric=given["rubric"],
        model=given["model"],
        settings=settings,
    )


def _as_sent(form: SearchStartForm) -> dict[str, Any]:
    """What an untouched form would send."""
    return {
        name: value
        for name in form.fields
        if (value := form.get_initial_for_field(form.fields[name], name)) not in (None, "")
    }


def _initial(request: HttpRequest, project: Project) -> dict[str, Any]:
    if request.GET.get("like", "").isdecimal():
        return dict(
            like(access.search_for_view(request.user, project.pk, int(request.GET["like"])))
        )
    slug = request.GET.get("environment") or newest_environment(project.pk)
    found = run_choices.suggested(project.pk, slug)
    found.pop("split", None)
    if request.GET.get("harness", "").isdecimal():
        found["harness"] = int(request.GET["harness"])
    return found


def field_of(problem: str) -> str | None:
    """None: it is about the form as a whole."""
    if "pairs" in problem and problem[:1].isdigit():
        return "certify_pairs"
    return next((field for start, field in WHERE if problem.startswith(start)), None)
