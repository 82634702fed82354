"""Back-tests of a draft and re-grades: asked for, followed while they run, read when they end."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from orchestrator.grading import queries, regrade, regrade_queries
from orchestrator.grading.backtest import comparison_of, start_backtest
from orchestrator.grading.comparison import Comparison
from orchestrator.grading.errors import RegradeRefused
from orchestrator.grading.models import Regrade, RegradePurpose
from orchestrator.grading.selecting import Selection, choices
from orchestrator.projects.access import project_for_edit
from orchestrator.runs.models import Run
from orchestrator.web import access as web_access
from orchestrator.web import regrade_access
from orchestrator.web import rubric_access as access
from orchestrator.web.figures import Bar, stacked
from orchestrator.web.frame import Crumb, page
from orchestrator.web.regrade_form import limit_in, number_in, selection_in
from orchestrator.web.rubric_tabs import tabs_of
from orchestrator.web.views.rubric_editor import rubric_crumbs, user_of
from rubrics.models import RubricVersion

FLIPS_PER_PAGE = 200
FIRST_WORD = 1000
"""Rollouts that are compared while it is under way, when the page is fetched again and again."""


@login_required
@require_safe
def rubric_backtests(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    rubric = access.rubric_for_view(request.user, project_id, rubric_id)
    runs, environments = choices(project_id)
    return page(
        request,
        "web/rubric_backtests.html",
        rubric.project,
        "rubrics",
        rubric_crumbs(rubric, "Back-tests"),
        rubric=rubric,
        tabs=tabs_of(rubric, "web:rubric_backtests"),
        draft=queries.draft_of(rubric),
        versions=queries.versions_of(rubric),
        rows=regrade_queries.regrades_of(rubric),
        runs=runs,
        environments=environments,
    )


@login_required
@require_POST
def backtest_start(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """Of the draft as it is stored."""
    draft = access.draft_for_edit(request.user, project_id, rubric_id)
    chosen = selection_in(request.POST, rubric_id)
    try:
        asked = start_backtest(
            actor=user_of(request), draft=draft, chosen=chosen, limit=limit_in(request.POST)
        )
    except RegradeRefused as refusal:
        messages.error(request, str(refusal))
        return redirect(_back(request, "web:rubric_backtests", project_id, rubric_id))
    if request.POST.get("next") == "publish":
        return redirect("web:rubric_publish", project_id, rubric_id)
    return redirect("web:regrade", project_id, asked.pk)


@login_required
@require_POST
def regrade_start(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """By one of the rubric's versions."""
    rubric = access.rubric_for_edit(request.user, project_id, rubric_id)
    wanted = number_in(request.POST, "version")
    version = next((v for v in queries.versions_of(rubric) if v.number == wanted), None)
    try:
        if version is None:
            raise RegradeRefused("Choose a version of the rubric to grade by.")
        asked = regrade.start_regrade(
            actor=user_of(request), version=version, chosen=selection_in(request.POST, rubric_id)
        )
    except RegradeRefused as refusal:
        messages.error(request, str(refusal))
        return redirect("web:rubric_backtests", project_id, rubric_id)
    return redirect("web:regrade", project_id, asked.pk)


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def run_regrade(request: HttpRequest, project_id: int, run_id: int) -> HttpResponse:
    """All, some or ticked rollouts of a run, by any rubric version of the project."""
    project_for_edit(request.user, project_id)
    run = web_access.run_for_view(request.user, project_id, run_id)
    versions = regrade_queries.versions_in_project(project_id)
    if request.method == "POST":
        return _start_for_run(request, run, versions)
    ticked = selection_in(request.GET).rollout_ids
    return page(
        request,
        "web/run_regrade.html",
        run.project,
        "runs",
        [
            Crumb("Runs", reverse("web:runs", args=[project_id])),
            Crumb(f"Run {run.pk}", reverse("web:run", args=[project_id, run.pk])),
            Crumb("Re-grade"),
        ],
        run=run,
        versions=versions,
        ticked=ticked,
        n_errored=regrade_queries.n_errored_in_run(run),
        earlier=regrade_queries.regrades_of_run(run),
    )


def _start_for_run(
    request: HttpRequest, run: Run, versions: Sequence[RubricVersion]
) -> HttpResponse:
    actor = user_of(request)
    if request.POST.get("what") == "choose":
        ticked = urlencode([("rollout", id) for id in _of_run(request, run).rollout_ids])
        here = reverse("web:run_regrade", args=[run.project_id, run.pk])
        return redirect(f"{here}?{ticked}" if ticked else here)
    try:
        if request.POST.get("what") == "errors":
            asked = regrade.retry_errors_of_run(actor=actor, run=run)
        else:
            asked = regrade.start_regrade(
                actor=actor,
                version=_version_in(request, versions),
                chosen=_of_run(request, run),
            )
    except RegradeRefused as refusal:
        messages.error(request, str(refusal))
        return redirect("web:run_regrade", run.project_id, run.pk)
    return redirect("web:regrade", run.project_id, asked.pk)


def _version_in(request: HttpRequest, versions: Sequence[RubricVersion]) -> RubricVersion:
    wanted = number_in(request.POST, "version")
    version = next((v for v in versions if v.pk == wanted), None)
    if version is None:
        raise RegradeRefused("Choose a version to grade by.")
    return version


def _of_run(request: HttpRequest, run: Run) -> Selection:
    sent = selection_in(request.POST)
    return Selection(run_id=run.pk, state=sent.state, rollout_ids=sent.rollout_ids)


@login_required
@require_safe
def regrade_page(request: HttpRequest, project_id: int, regrade_id: int) -> HttpResponse:
    asked = regrade_access.regrade_for_view(request.user, project_id, regrade_id)
    # Read before the rows: what is stored meanwhile comes again by the feed and changes nothing.
    last_seq = asked.stream.last_seq
    is_open = asked.state in regrade.OPEN_STATES
    n_done = regrade_queries.n_done(asked)
    found = comparison_of(asked, FIRST_WORD if is_open else None)
    title = "Back-test" if asked.purpose == RegradePurpose.BACKTEST else "Re-grade"
    return page(
        request,
        "web/regrade.html",
        asked.project,
        "rubrics",
        [
            Crumb("Rubrics", reverse("web:rubrics", args=[project_id])),
            Crumb(asked.rubric.name, reverse("web:rubric", args=[project_id, asked.rubric_id])),
            Crumb(
                "Back-tests", reverse("web:rubric_backtests", args=[project_id, asked.rubric_id])
            ),
            Crumb(f"{title} {asked.pk}"),
        ],
        asked=asked,
        rubric=asked.rubric,
        title=title,
        is_open=is_open,
        is_backtest=asked.purpose == RegradePurpose.BACKTEST,
        last_seq=last_seq,
        n_done=n_done,
        found=found,
        flips=found.flips[:FLIPS_PER_PAGE],
        n_more=max(0, len(found.flips) - FLIPS_PER_PAGE),
        bars=bars_of(found),
        n_missing=0 if is_open else asked.n_total - n_done,
        n_errored_rows=0 if is_open else regrade_queries.n_errored_rows(asked),
    )


def bars_of(found: Comparison) -> list[Bar]:
    """Same, up, down, without a score now."""
    parts = [("na", found.n_same), ("good", found.n_up), ("bad", found.n_down)]
    return stacked([*parts, ("hatch", found.n - found.n_both)], found.n)


@login_required
@require_POST
def regrade_cancel(request: HttpRequest, project_id: int, regrade_id: int) -> HttpResponse:
    asked = regrade_access.regrade_for_edit(request.user, project_id, regrade_id)
    regrade.cancel_regrade(actor=user_of(request), regrade=asked)
    messages.success(request, "It is being cancelled. Scores so far stay.")
    return redirect("web:regrade", project_id, regrade_id)


@login_required
@require_POST
def regrade_resume(request: HttpRequest, project_id: int, regrade_id: int) -> HttpResponse:
    """`errors`: what errored is graded again too."""
    asked: Regrade = regrade_access.regrade_for_edit(request.user, project_id, regrade_id)
    try:
        left = regrade.resume_regrade(
            actor=user_of(request), regrade=asked, with_errors="errors" in request.POST
        )
    except RegradeRefused as refusal:
        messages.error(request, str(refusal))
    else:
        plural = "" if left == 1 else "s"
        messages.success(request, f"{left} rollout{plural} will be graded again.")
    return redirect("web:regrade", project_id, regrade_id)


def _back(request: HttpRequest, name: str, project_id: int, rubric_id: int) -> str:
    name = "web:rubric_publish" if request.POST.get("next") == "publish" else name
    return reverse(name, args=[project_id, rubric_id])
