"""The curves of many trainings over each other, and their figures as JSON."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from orchestrator.projects.access import project_for_view
from orchestrator.trainings import curves
from orchestrator.web import training_curves as shown_as
from orchestrator.web.frame import Crumb, page
from orchestrator.web.views.training import train_crumb


@login_required
@require_safe
def training_curves(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    listed = list(curves.jobs_on_board(project.pk))
    shown = shown_as.chosen(request.GET, listed)
    by_id = {job.pk: job for job in listed}
    last = curves.last_values(shown)
    return page(
        request,
        "web/training_curves.html",
        project,
        "train",
        [train_crumb(project.pk), Crumb("Curves")],
        lines=shown_as.lines(listed, shown),
        most_listed=curves.MOST_JOBS,
        most_shown=shown_as.MOST_SHOWN,
        n_shown=len(shown),
        sections=shown_as.sections(),
        rows=[(by_id[pk], [last.get(pk, {}).get(key) for key in curves.KEYS]) for pk in shown],
        charts=list(curves.KEYS.values()),
    )


@login_required
@require_safe
def training_curves_data(request: HttpRequest, project_id: int) -> HttpResponse:
    """`?key=reward&job=1&job=2`, `&by=time` `&crowd=1` and `&points=600`."""
    project = project_for_view(request.user, project_id)
    key = request.GET.get("key", "")
    if key not in curves.KEYS:
        raise Http404(f"no quantity {key!r}")
    asked = [int(each) for each in request.GET.getlist("job") if each.isdecimal()]
    asked = asked[: shown_as.MOST_SHOWN]
    found = curves.overlay(
        project.pk,
        key,
        asked,
        by_time=request.GET.get("by") == "time",
        crowd=request.GET.get("crowd") == "1",
        most=shown_as.points_asked(request.GET.get("points", "")),
    )
    return JsonResponse(shown_as.as_json(found, key, curves.named(project.pk, asked)))
