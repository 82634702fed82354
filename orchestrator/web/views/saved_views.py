"""Keeping and removing views of lists."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from orchestrator.projects.access import project_for_view
from orchestrator.runs.models import ListKind
from orchestrator.runs.rollout_list import SORTS as ROLLOUT_SORTS
from orchestrator.runs.run_list import SORTS as RUN_SORTS
from orchestrator.runs.saved_views import ViewRefused, remove_view, save_view, view_for
from orchestrator.web.kept_views import link_of
from orchestrator.web.listing import state_in
from orchestrator.web.rollout_rows import columns_of
from orchestrator.web.views.rubric_editor import user_of


@login_required
@require_POST
def view_save(request: HttpRequest, project_id: int, of: str) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    sorts = ROLLOUT_SORTS if of == ListKind.ROLLOUTS else RUN_SORTS
    state = state_in(dict(request.POST.lists()), sorts)
    known = columns_of(state) if of == ListKind.ROLLOUTS and state.columns else []
    try:
        view = save_view(
            actor=user_of(request),
            project=project,
            of=ListKind(of),
            name=request.POST.get("name", ""),
            query=state.query,
            sort=state.sort,
            columns=[column.name for column in known],
            is_shared="shared" in request.POST,
        )
    except ViewRefused as refusal:
        messages.error(request, str(refusal))
    else:
        whose = "everybody in the project" if view.is_shared else "you"
        messages.success(request, f"The view “{view.name}” is kept for {whose}.")
    return redirect(_list_url(project.pk, of) + state.link())


@login_required
@require_POST
def view_remove(request: HttpRequest, project_id: int, view_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    user = user_of(request)
    view = view_for(project.pk, user, view_id)
    if view is None:
        raise Http404("There is no such view.")
    remove_view(actor=user, view=view)
    messages.success(request, f"The view “{view.name}” is removed.")
    return redirect(_list_url(project.pk, view.of) + link_of(view))


def _list_url(project_id: int, of: str) -> str:
    return reverse(f"web:{of}", args=[project_id])
