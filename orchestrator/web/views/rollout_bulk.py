"""What can be done with ticked rollouts, or with all that a filter finds."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import (
    HttpRequest,
    HttpResponse,
    HttpResponseBadRequest,
    HttpResponseBase,
    StreamingHttpResponse,
)
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_safe

from orchestrator.grading import regrade, regrade_queries
from orchestrator.grading.errors import RegradeRefused
from orchestrator.grading.selecting import Selection
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.runs import rollout_list as rollouts
from orchestrator.runs.comparison.reading import MAX_SIDES
from orchestrator.runs.filtering.grammar import FilterError
from orchestrator.runs.rollout_export import csv_lines, jsonl_lines
from orchestrator.web.frame import Crumb, page
from orchestrator.web.regrade_form import number_in, selection_in
from orchestrator.web.views.rubric_editor import user_of

TYPES = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}


@login_required
@require_safe
def rollout_export(request: HttpRequest, project_id: int, form: str) -> HttpResponseBase:
    """The ticked ones (`?rollout=`), or all that `?q=` finds."""
    project = project_for_view(request.user, project_id)
    ticked = selection_in(request.GET).rollout_ids
    try:
        query = rollouts.rollouts_matching(
            project.pk, "" if ticked else request.GET.get("q", "").replace("\x00", "")
        )
    except FilterError as error:
        return HttpResponseBadRequest(error.message, content_type="text/plain; charset=utf-8")
    if ticked:
        query = query.filter(pk__in=ticked)
    lines = csv_lines(query) if form == "csv" else jsonl_lines(query)
    response = StreamingHttpResponse(lines, content_type=TYPES[form])
    response["Content-Disposition"] = f'attachment; filename="rollouts.{form}"'
    return response


@login_required
@require_safe
def compare_ticked(request: HttpRequest, project_id: int) -> HttpResponse:
    """Two rollouts step by step; more, or those of several runs, as their runs side by side."""
    project = project_for_view(request.user, project_id)
    ids = selection_in(request.GET).rollout_ids
    runs = rollouts.runs_of(project.pk, ids)
    if len(ids) == 2 and len(runs) == 2:
        return redirect("web:compare_rollouts", project_id, *ids)
    sides = list(dict.fromkeys(runs.values()))
    if len(sides) < 2:
        messages.error(
            request, "Tick two rollouts to compare them step by step, or some of several runs."
        )
        return redirect("web:rollouts", project_id)
    if len(sides) > MAX_SIDES:
        messages.error(request, f"The ticked rollouts are of {len(sides)} runs.")
        messages.error(request, f"A comparison has at most {MAX_SIDES} sides: the first are shown.")
    tokens = ",".join(str(run) for run in sides[:MAX_SIDES])
    return redirect(f"{reverse('web:compare', args=[project_id])}?runs={tokens}")


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def regrade_ticked(request: HttpRequest, project_id: int) -> HttpResponse:
    """Ticked rollouts by any rubric version of the project: a choice, then a start."""
    project = project_for_edit(request.user, project_id)
    versions = regrade_queries.versions_in_project(project.pk)
    if request.method == "POST":
        ids = selection_in(request.POST).rollout_ids
        if request.POST.get("what") == "choose":
            asked = urlencode([("rollout", id) for id in ids])
            return redirect(f"{reverse('web:rollouts_regrade', args=[project_id])}?{asked}")
        wanted = number_in(request.POST, "version")
        version = next((each for each in versions if each.pk == wanted), None)
        try:
            if version is None or not ids:
                raise RegradeRefused("Tick rollouts and choose a version to grade by.")
            started = regrade.start_regrade(
                actor=user_of(request), version=version, chosen=Selection(rollout_ids=ids)
            )
        except RegradeRefused as refusal:
            messages.error(request, str(refusal))
            return redirect("web:rollouts", project_id)
        return redirect("web:regrade", project_id, started.pk)
    ticked = selection_in(request.GET).rollout_ids
    if not ticked:
        messages.error(request, "Tick the rollouts to grade again.")
        return redirect("web:rollouts", project_id)
    crumbs = [Crumb("Rollouts", reverse("web:rollouts", args=[project_id])), Crumb("Re-grade")]
    return page(
        request,
        "web/rollouts_regrade.html",
        project,
        "runs",
        crumbs,
        ticked=ticked,
        versions=versions,
    )
