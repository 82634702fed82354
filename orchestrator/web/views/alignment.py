"""Asking for a better question of a judge, from the calibration page."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from orchestrator.grading.queries import versions_of
from orchestrator.review.alignment import cancel_alignment, start_alignment, take_over
from orchestrator.review.errors import ReviewRefused
from orchestrator.web.calibration_access import alignment_for_edit, endpoint_in
from orchestrator.web.rubric_access import rubric_for_edit
from orchestrator.web.views.calibration import chosen_version
from rubrics.models import Rubric


@login_required
@require_POST
def alignment_start(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    rubric = rubric_for_edit(request.user, project_id, rubric_id)
    version = chosen_version(versions_of(rubric), request.POST.get("version", ""))
    criterion = request.POST.get("criterion", "")
    endpoint = endpoint_in(project_id, request.POST.get("endpoint", ""))
    try:
        if endpoint is None or version is None:
            raise ReviewRefused("Choose a model that is to propose the question.")
        try:
            cap = float(request.POST.get("max_cost_usd", "1"))
        except ValueError:
            raise ReviewRefused("The cap on cost is a number of USD.") from None
        start_alignment(
            actor=request.user,  # type: ignore[arg-type] # login_required
            version=version,
            criterion=criterion,
            endpoint=endpoint,
            max_cost_usd=cap,
        )
    except ReviewRefused as refused:
        messages.error(request, str(refused))
    return _to_card(rubric, criterion)


@login_required
@require_POST
def alignment_cancel(
    request: HttpRequest, project_id: int, rubric_id: int, alignment_id: int
) -> HttpResponse:
    rubric, alignment = alignment_for_edit(request.user, project_id, rubric_id, alignment_id)
    cancel_alignment(actor=request.user, alignment=alignment)  # type: ignore[arg-type] # login_required
    return _to_card(rubric, alignment.criterion)


@login_required
@require_POST
def alignment_take(
    request: HttpRequest, project_id: int, rubric_id: int, alignment_id: int
) -> HttpResponse:
    """Into the draft, where it is read, tried and published like any other edit."""
    rubric, alignment = alignment_for_edit(request.user, project_id, rubric_id, alignment_id)
    try:
        take_over(actor=request.user, alignment=alignment)  # type: ignore[arg-type] # login_required
    except ReviewRefused as refused:
        messages.error(request, str(refused))
        return _to_card(rubric, alignment.criterion)
    messages.success(request, "The question is in the draft. Nothing is published yet.")
    return redirect("web:rubric_edit", project_id, rubric_id)


def _to_card(rubric: Rubric, criterion: str) -> HttpResponse:
    url = reverse("web:rubric_calibration", args=[rubric.project_id, rubric.pk])
    return redirect(f"{url}#c-{criterion}")
