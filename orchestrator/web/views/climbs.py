from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.climbs.models import Climb
from orchestrator.climbs.queries import ladder, list_climbs
from orchestrator.climbs.services import ClimbError, cancel_climb, pause_climb, resume_climb
from orchestrator.grading.hacking import acknowledge, alarms_of, open_alarms
from orchestrator.grading.queries import hacking_alarms
from orchestrator.projects.access import project_for_view
from orchestrator.web import access, queries
from orchestrator.web.climb_report import why_between
from orchestrator.web.figures import NARROW, WIDE, climb_figure
from orchestrator.web.frame import Crumb, page
from orchestrator.web.ladder import climb_cards, edit_rows, harness_diff, rung_rows, training_curves
from orchestrator.web.turns import turn_of

EDITS_SHOWN = 8
"""Edits shown at once, strongest first; the rest is folded."""

ACTIONS = {"pause": pause_climb, "resume": resume_climb, "cancel": cancel_climb}
SAID = {
    "pause": "The climb pauses after the work in hand. Nothing is lost.",
    "resume": "The climb goes on where it stopped.",
    "cancel": "The climb is being cancelled. Finished rungs keep their certificates.",
}


@login_required
@require_safe
def climb_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    rows = climb_cards(list_climbs(project.pk)[:50])
    return page(
        request,
        "web/climbs.html",
        project,
        "ladder",
        [Crumb("Ladder")],
        rows=rows,
        alarms=open_alarms(project.pk),
    )


@login_required
@require_safe
def climb_detail(request: HttpRequest, project_id: int, climb_id: int) -> HttpResponse:
    climb = access.climb_for_view(request.user, project_id, climb_id)
    # Read before everything else: what is appended meanwhile comes again by the feed.
    last_seq = queries.last_seq(climb.stream_id)
    view = ladder(climb.pk)
    names = [rung.get_kind_display() for rung in view.rungs]
    edits = edit_rows(view.edits)
    return page(
        request,
        "web/climb.html",
        climb.project,
        "ladder",
        [
            Crumb("Ladder", reverse("web:climbs", args=[project_id])),
            Crumb(f"{climb.name}, climb {climb.pk}", copy=str(climb.pk)),
        ],
        view=view,
        headline=view.headline,
        climb=view.climb,
        rungs=rung_rows(view.rungs, why_between(view.rungs, view.decisions, view.climb)),
        figure=climb_figure(view.rungs, names, WIDE),
        narrow=climb_figure(view.rungs, names, NARROW),
        diff=_diff(view.climb, view.rungs),
        edits_first=edits[:EDITS_SHOWN],
        edits_rest=edits[EDITS_SHOWN:],
        comparisons=queries.comparisons_of(view.climb.search_id),
        curves=training_curves(view.training),
        alarms=alarms_of(climb.pk),
        turn=turn_of(view.climb),
        last_seq=last_seq,
    )


def _diff(climb: Climb, rungs: Any) -> dict[str, Any] | None:
    """Seed harness against that of the newest rung which has another one."""
    changed = [r for r in rungs if r.harness_id and r.harness_id != climb.seed_harness_id]
    if not changed:
        return None
    rung = changed[0]
    texts = queries.harness_texts([climb.seed_harness_id, rung.harness_id])
    return {
        "before": climb.seed_harness,
        "after": rung.harness,
        "name": rung.get_kind_display(),
        "components": harness_diff(
            texts.get(climb.seed_harness_id, {}), texts.get(rung.harness_id, {})
        ),
    }


@login_required
@require_safe
def certificate(request: HttpRequest, project_id: int, climb_id: int, index: int) -> JsonResponse:
    climb = access.climb_for_view(request.user, project_id, climb_id)
    rung = get_object_or_404(climb.rungs.all(), index=index)
    response = JsonResponse(rung.certificate, json_dumps_params={"indent": 2})
    if "download" in request.GET:
        name = f"certificate-climb-{climb.pk}-rung-{index}.json"
        response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@login_required
@require_POST
def alarm_acknowledge(
    request: HttpRequest, project_id: int, climb_id: int, alarm_id: int
) -> HttpResponse:
    climb = access.climb_for_edit(request.user, project_id, climb_id)
    alarm = get_object_or_404(hacking_alarms(climb.pk), pk=alarm_id)
    acknowledge(actor=request.user, alarm=alarm)  # type: ignore[arg-type] # login_required
    messages.success(request, "Acknowledged. It comes back only if it grows.")
    return redirect("web:climb", project_id, climb_id)


@login_required
@require_POST
def climb_action(request: HttpRequest, project_id: int, climb_id: int, action: str) -> HttpResponse:
    climb = access.climb_for_edit(request.user, project_id, climb_id)
    try:
        ACTIONS[action](actor=request.user, climb=climb)  # type: ignore[arg-type] # login_required
    except ClimbError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, SAID[action])
    return redirect("web:climb", project_id, climb_id)
