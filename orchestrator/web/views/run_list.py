"""The list of a project's runs behind the same filter field as their rollouts."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from orchestrator.projects.access import project_for_page
from orchestrator.runs import run_list as runs
from orchestrator.runs.filtering.grammar import FilterError
from orchestrator.runs.filtering.paging import BadCursor
from orchestrator.runs.models import ListKind, Purpose, RunState
from orchestrator.web import queries
from orchestrator.web.frame import Crumb, page
from orchestrator.web.kept_views import kept_views
from orchestrator.web.listing import ListState, mistake_in, state_in
from orchestrator.web.run_tabs import tabs_of
from orchestrator.web.views.rubric_editor import user_of

ORDERS = (
    ("-id", "newest"),
    ("id", "oldest"),
    ("-score", "best"),
    ("score", "worst"),
    ("-cost", "costliest"),
)


@login_required
@require_safe
def run_list(request: HttpRequest, project_id: int) -> HttpResponse:
    project, seen = project_for_page(request.user, project_id)
    given = dict(request.GET.lists())
    state = state_in(given, runs.SORTS)
    # What older links ask for.
    for name, values in (("purpose", Purpose.values), ("state", RunState.values)):
        if (asked := (given.get(name) or [""])[-1]) in values:
            return redirect(request.path + state.link(query=state.narrowed(f"{name} = {asked}")))
    now = state.sort or runs.DEFAULT_SORT
    context: dict[str, Any] = {
        "state": state,
        "orders": [
            (word, state.link(sort="" if name == runs.DEFAULT_SORT else name), name == now)
            for name, word in ORDERS
        ],
        "views": kept_views(project.pk, user_of(request), ListKind.RUNS),
        "tabs": tabs_of(project.pk, "web:runs"),
        "seen": seen,
    }
    try:
        try:
            context |= _found(project.pk, state, now)
        except BadCursor:
            context |= _found(project.pk, state.first_page, now)
    except FilterError as error:
        context["mistake"] = mistake_in(state.query, error.message, error.start, error.end)
    return page(request, "web/runs.html", project, "runs", [Crumb("Runs")], **context)


def _found(project_id: int, state: ListState, sort: str) -> dict[str, Any]:
    query = runs.runs_matching(project_id, state.query)
    found = runs.list_runs_page(query, sort=sort, after=state.after, before=state.before)
    if not found.rows:
        if state.after or state.before:
            raise BadCursor("What stood there is gone.")
        return {"total": queries.count_runs(project_id)}
    return {
        "found": queries.run_page_of(found.rows),
        "next_url": state.link(after=found.after) if found.after else "",
        "previous_url": state.link(before=found.before) if found.before else "",
    }
