"""The form that starts a climb, and a person's word against the plateau rule."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from optimizer.harness import Harness
from optimizer.store import store_harness
from orchestrator.climbs.models import Climb
from orchestrator.climbs.services import ClimbError, start_climb
from orchestrator.climbs.turns import overrule
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project, User
from orchestrator.web import access, run_choices
from orchestrator.web.climb_form import ClimbStartForm
from orchestrator.web.form_fields import missing_choices
from orchestrator.web.frame import Crumb, page
from orchestrator.web.search_queries import newest_environment

WHAT = ("version", "rubric", "model", "harness", "name")
BUDGET = ("max_rollouts", "certify_pairs", "max_harness_rungs", "test_replicates")
TRAINING = ("steps", "groups", "samples", "sampler", "env_loss_weight", "concurrency")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def climb_start(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    form = ClimbStartForm(
        project, request.POST or None, initial=None if request.POST else _initial(request, project)
    )
    if form.is_bound and form.is_valid():
        try:
            climb = _start(request, project, form)
        except ClimbError as refused:
            form.add_error(None, str(refused))
        else:
            messages.success(request, "The climb is queued. It begins with the baseline.")
            return redirect("web:climb", project_id, climb.pk)
    return page(
        request,
        "web/climb_start.html",
        project,
        "ladder",
        [Crumb("Ladder", reverse("web:climbs", args=[project_id])), Crumb("Start")],
        status=422 if form.is_bound else 200,
        form=form,
        missing=missing_choices(form, "version", "rubric", "model"),
        what=[form[name] for name in WHAT],
        budget=[form[name] for name in BUDGET],
        training=[form[name] for name in TRAINING],
    )


def _start(request: HttpRequest, project: Project, form: ClimbStartForm) -> Climb:
    given = form.cleaned_data
    harness = given["harness"] or store_harness(
        project_id=project.pk, harness=Harness(), label="plain"
    )
    assert isinstance(request.user, User)  # login_required
    return start_climb(
        actor=request.user,
        project=project,
        name=given["name"].strip() or given["version"].environment.name,
        environment_version=given["version"],
        rubric_version=given["rubric"],
        model=given["model"],
        seed_harness=harness,
        settings=form.settings(),
    )


def _initial(request: HttpRequest, project: Project) -> dict[str, Any]:
    slug = request.GET.get("environment") or newest_environment(project.pk)
    found = run_choices.suggested(project.pk, slug)
    found.pop("split", None)
    return found


@login_required
@require_POST
def climb_overrule(request: HttpRequest, project_id: int, climb_id: int) -> HttpResponse:
    climb = access.climb_for_edit(request.user, project_id, climb_id)
    assert isinstance(request.user, User)  # login_required
    try:
        overrule(actor=request.user, climb=climb, next=request.POST.get("next", ""))
    except ClimbError as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, "Decided. The climb turns by your word, and the log says so.")
    return redirect("web:climb", project_id, climb_id)
