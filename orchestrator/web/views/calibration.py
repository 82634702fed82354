"""Calibration of a rubric: how far people and each criterion agree, and what follows from it."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.grading.errors import PolicyRefused
from orchestrator.grading.policies import (
    allow_criterion,
    bar_criterion,
    bar_of,
    entries_of,
    policies_of,
    set_bar,
)
from orchestrator.grading.queries import endpoints_of, versions_of
from orchestrator.review.alignment import alignments_of
from orchestrator.review.calibration_queries import calibrations, wordings
from orchestrator.review.errors import ReviewRefused
from orchestrator.review.queries import names_of_queues
from orchestrator.review.unlabelled import enqueue_unlabelled
from orchestrator.web.calibration_cards import card_of
from orchestrator.web.frame import Crumb, page
from orchestrator.web.rubric_access import rubric_for_edit, rubric_for_view
from orchestrator.web.rubric_tabs import tabs_of
from rubrics.models import Rubric, RubricVersion


@login_required
@require_safe
def rubric_calibration(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    rubric = rubric_for_view(request.user, project_id, rubric_id)
    versions = versions_of(rubric)
    version = chosen_version(versions, request.GET.get("version", ""))
    bar = bar_of(project_id)
    policies, alignments = policies_of(rubric.pk), alignments_of(rubric)
    found = calibrations(rubric, version) if version else {}
    worded = wordings(rubric, versions)
    cards = [
        card_of(
            each,
            bar=bar,
            policy=policies.get(id),
            version=version.number if version else 0,
            alignments=alignments.get(id, ()),
            wordings=worded.get(id, ()),
            is_first=i == 0,
        )
        for id, judges in found.items()
        for i, each in enumerate(judges)
    ]
    return page(
        request,
        "web/calibration.html",
        rubric.project,
        "rubrics",
        [
            Crumb("Rubrics", reverse("web:rubrics", args=[project_id])),
            Crumb(rubric.name, reverse("web:rubric", args=[project_id, rubric_id])),
            Crumb("Calibration"),
        ],
        rubric=rubric,
        tabs=tabs_of(rubric, "web:rubric_calibration"),
        versions=versions,
        version=version,
        bar=bar,
        cards=cards,
        n_labels=sum(card.found.n_labels for card in cards if card.is_first),
        suggested=[card for card in cards if card.is_suggested and card.is_first],
        entries=entries_of(rubric.pk),
        queues=[
            queue
            for queue in names_of_queues(project_id)
            if queue.rubric_version.rubric_id == rubric.pk and queue.mode == "single"
        ],
        endpoints=endpoints_of(project_id),
    )


def chosen_version(versions: list[RubricVersion], wanted: str) -> RubricVersion | None:
    """The one that is asked for, else the newest."""
    newest = versions[0] if versions else None
    return next((v for v in versions if str(v.number) == wanted), newest)


@login_required
@require_POST
def calibration_bar(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    rubric = rubric_for_edit(request.user, project_id, rubric_id)
    try:
        bar = set_bar(
            actor=request.user,  # type: ignore[arg-type] # login_required
            project=rubric.project,
            kappa=_number(request.POST.get("kappa", "")),
            min_labels=round(_number(request.POST.get("min_labels", ""))),
        )
        messages.success(
            request,
            f"The project believes a criterion from κ {bar.kappa:g} of {bar.min_labels} labels on.",
        )
    except PolicyRefused as refused:
        messages.error(request, str(refused))
    return _back(rubric)


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if value != value or abs(value) > 1e9:
        raise PolicyRefused(f"“{text[:20]}” is not a number.")
    return value


@login_required
@require_POST
def calibration_policy(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """Bars a criterion from being learned from, or takes that back."""
    rubric = rubric_for_edit(request.user, project_id, rubric_id)
    criterion = request.POST.get("criterion", "")
    is_bar = request.POST.get("do") == "bar"
    decide = bar_criterion if is_bar else allow_criterion
    try:
        decide(
            actor=request.user,  # type: ignore[arg-type] # login_required
            rubric=rubric,
            criterion=criterion,
            reason=request.POST.get("reason", ""),
        )
        messages.success(
            request,
            f"{criterion} is barred: nothing is learned from it from the next run on."
            if is_bar
            else f"{criterion} may be learned from again.",
        )
    except PolicyRefused as refused:
        messages.error(request, str(refused))
    return _back(rubric, criterion)


@login_required
@require_POST
def calibration_enqueue(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """Puts rollouts that nobody has marked into a review queue, made where none is chosen."""
    rubric = rubric_for_edit(request.user, project_id, rubric_id)
    criterion = request.POST.get("criterion", "")
    version = chosen_version(versions_of(rubric), request.POST.get("version", ""))
    wanted = request.POST.get("n", "")
    n = int(wanted) if wanted.isdecimal() and len(wanted) < 6 else 0
    try:
        if version is None:
            raise ReviewRefused("There is no such criterion to label.")
        queue = next(
            (
                queue
                for queue in names_of_queues(project_id)
                if str(queue.pk) == request.POST.get("queue")
                and queue.rubric_version.rubric_id == rubric.pk
            ),
            None,
        )
        done = enqueue_unlabelled(
            actor=request.user,  # type: ignore[arg-type] # login_required
            version=version,
            criterion=criterion,
            n=n,
            queue=queue,
            name=request.POST.get("name", ""),
        )
        messages.success(request, f"{done.queue.name}: {done.added}")
    except ReviewRefused as refused:
        messages.error(request, str(refused))
    return _back(rubric, criterion)


def _back(rubric: Rubric, criterion: str = "") -> HttpResponse:
    url = reverse("web:rubric_calibration", args=[rubric.project_id, rubric.pk])
    return redirect(f"{url}#c-{criterion}" if criterion else url)
