"""Starts a training or a sweep; an estimate comes first, and starts nothing."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator.projects.access import project_for_edit
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.manifests import estimate_of, manifest_of
from orchestrator.trainings.origins import Work
from orchestrator.trainings.services import check_work, start_training
from orchestrator.trainings.sweeps import cancel_sweep, current_verdict, start_sweep
from orchestrator.web import run_choices, training_access
from orchestrator.web.frame import Crumb, page
from orchestrator.web.training_form import TrainForm
from orchestrator.web.training_sweep import sweep_rows


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def training_new(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_edit(request.user, project_id)
    form = TrainForm(project, request.POST or None, initial=run_choices.suggested(project.pk, ""))
    estimate: dict[str, Any] | None = None
    is_asked = "estimate" in request.POST
    if form.is_bound and form.is_valid():
        try:
            if not is_asked:
                return _started(request, project_id, form)
            work = Work(**form.parts, settings=form.settings, seed=form.cleaned_data["seeds"][0])
            check_work(work)
            estimate = estimate_of(manifest_of(work))
        except (TrainingRefused, ValueError) as refused:
            form.add_error(None, str(refused))
    has_failed = form.is_bound and bool(form.errors)
    return page(
        request,
        "web/training_new.html",
        project,
        "train",
        [Crumb("Train", reverse("web:training", args=[project_id])), Crumb("Start")],
        status=422 if has_failed else 200,
        form=form,
        missing=form.missing,
        estimate=estimate,
        n_jobs=len(form.cleaned_data["lambdas"]) * len(form.cleaned_data["seeds"])
        if estimate
        else 1,
    )


def _started(request: HttpRequest, project_id: int, form: TrainForm) -> HttpResponse:
    given = form.cleaned_data
    project = project_for_edit(request.user, project_id)
    common: dict[str, Any] = {
        "actor": request.user,
        "project": project,
        "name": given["name"],
        "settings": form.settings,
        **form.parts,
    }
    if len(given["lambdas"]) > 1 or len(given["seeds"]) > 1:
        sweep = start_sweep(**common, lambdas=given["lambdas"], seeds=given["seeds"])
        messages.success(request, "The sweep is queued, seed by seed.")
        return redirect("web:training_sweep", project_id, sweep.pk)
    job = start_training(**common, seed=given["seeds"][0])
    messages.success(request, "The training is queued. It begins as soon as a device is free.")
    return redirect("web:training_job", project_id, job.pk)


@login_required
@require_safe
def training_sweep(request: HttpRequest, project_id: int, sweep_id: int) -> HttpResponse:
    sweep = training_access.sweep_for_view(request.user, project_id, sweep_id)
    return page(
        request,
        "web/training_sweep.html",
        sweep.project,
        "train",
        [
            Crumb("Train", reverse("web:training", args=[project_id])),
            Crumb(f"{sweep.name}, sweep {sweep.pk}", copy=str(sweep.pk)),
        ],
        sweep=sweep,
        view=sweep_rows(sweep, current_verdict(sweep)),
    )


@login_required
@require_POST
def training_sweep_cancel(request: HttpRequest, project_id: int, sweep_id: int) -> HttpResponse:
    sweep = training_access.sweep_for_edit(request.user, project_id, sweep_id)
    cancel_sweep(actor=request.user, sweep=sweep)  # type: ignore[arg-type] # login_required
    messages.success(request, "The sweep is being cancelled. What was measured stays.")
    return redirect("web:training_sweep", project_id, sweep_id)
