"""The list of a project's rollouts, a look at one of them, and what its filter field completes."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from orchestrator.projects.access import project_for_page, project_for_view
from orchestrator.projects.models import Project
from orchestrator.review.queries import names_of_queues
from orchestrator.runs import rollout_list as rollouts
from orchestrator.runs.filtering.grammar import FilterError
from orchestrator.runs.filtering.paging import BadCursor
from orchestrator.runs.models import ListKind
from orchestrator.runs.queries import rollout_detail
from orchestrator.web import access, filter_words, trace_queries
from orchestrator.web import rollout_rows as drawing
from orchestrator.web.frame import Crumb, page
from orchestrator.web.kept_views import kept_views
from orchestrator.web.listing import ListState, heads, mistake_in, state_in
from orchestrator.web.rubric import negative_criteria
from orchestrator.web.run_tabs import tabs_of
from orchestrator.web.trace import build_card
from orchestrator.web.views.rubric_editor import user_of

PEEKED = 200
"""Events in the outline of a peek."""


@login_required
@require_safe
def rollout_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project, seen = project_for_page(request.user, project_id)
    state = state_in(dict(request.GET.lists()), rollouts.SORTS)
    columns = drawing.columns_of(state)
    context: dict[str, Any] = {
        "state": state,
        "columns": columns,
        "heads": heads([drawing.TASK, *columns], state, rollouts.DEFAULT_SORT),
        "all_columns": [(each, each in columns) for each in drawing.COLUMNS.values()],
        "verdict_columns": drawing.criteria_in(columns),
        "views": kept_views(project.pk, user_of(request), ListKind.ROLLOUTS),
        "tabs": tabs_of(project.pk, "web:rollouts"),
    }
    try:
        try:
            context |= _found(project, state, columns)
        except BadCursor:
            context |= _found(project, state.first_page, columns)
    except FilterError as error:
        context["mistake"] = mistake_in(state.query, error.message, error.start, error.end)
    return page(
        request, "web/rollouts.html", project, "runs", [Crumb("Rollouts")], standing=seen, **context
    )


def _found(project: Project, state: ListState, columns: list[Any]) -> dict[str, Any]:
    query = rollouts.rollouts_matching(project.pk, state.query)
    amount = rollouts.amount_of(query)
    if not amount.n:
        is_narrowed = bool(state.query.strip())
        n_without = rollouts.rollouts_matching(project.pk, "").count() if is_narrowed else 0
        return {"amount": amount, "n_without": n_without}
    found = rollouts.list_rollouts(
        rollouts.rollouts_matching(project.pk, state.query, in_order=amount.n > rollouts.MANY),
        sort=state.sort or rollouts.DEFAULT_SORT,
        after=state.after,
        before=state.before,
        criteria=drawing.criteria_in(columns),
    )
    if not found.rows:
        raise BadCursor("What stood there is gone.")
    scored, unscored = drawing.bars_of(amount, state)
    return {
        "amount": amount,
        "rows": [drawing.row_of(row, project.pk, columns) for row in found.rows],
        "scored_bars": scored,
        "unscored_bars": unscored,
        "next_url": state.link(after=found.after) if found.after else "",
        "previous_url": state.link(before=found.before) if found.before else "",
    }


@login_required
@require_safe
def rollout_words(request: HttpRequest, project_id: int) -> JsonResponse:
    """Fields, operators and known values, for the filter field to complete."""
    project = project_for_view(request.user, project_id)
    of = ListKind.RUNS if request.GET.get("of") == "runs" else ListKind.ROLLOUTS
    queues = names_of_queues(project.pk) if of == ListKind.ROLLOUTS else []
    return JsonResponse(
        {
            "fields": filter_words.words_of(project.pk, of),
            "queues": [{"id": queue.pk, "name": queue.name} for queue in queues],
        }
    )


@login_required
@require_safe
def rollout_peek(request: HttpRequest, project_id: int, rollout_id: int) -> HttpResponse:
    """Header, verdicts and outline for the drawer; bodies come when a line is opened."""
    rollout = access.rollout_for_view(request.user, project_id, rollout_id)
    detail = rollout_detail(rollout.pk)
    shown = detail.rollout
    negatives = negative_criteria(shown.run.rubric_version.spec)
    events = trace_queries.first_events(shown.stream_id, PEEKED)
    return render(
        request,
        "web/parts/rollout_peek.html",
        {
            "project": shown.run.project,
            "rollout": shown,
            "run": shown.run,
            "verdicts": detail.verdicts,
            "negatives": negatives,
            "cards": [build_card(event, negatives) for event in events],
            "n_events": shown.stream.last_seq,
        },
    )
