"""A rubric on one past rollout or golden case: page of its own, and part of the editor.

What the editor shows is the draft as it is stored, on the chosen transcript; without a draft it is
the newest version. Models are asked by POST alone: they cost money.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from orchestrator.grading import queries, regrade_queries
from orchestrator.grading.preview import Preview, preview
from orchestrator.grading.writing import writing_of
from orchestrator.projects.access import role_in
from orchestrator.projects.models import Role
from orchestrator.web import rubric_access as access
from orchestrator.web.frame import page
from orchestrator.web.preview_subject import SHOW, Subject, offer_of, subject_of
from orchestrator.web.rubric_tabs import tabs_of
from orchestrator.web.views.rubric_editor import rubric_crumbs


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def rubric_preview(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """`on`: r or g and an id; `show`, `q`: which rollouts are offered; `part`: the part alone."""
    rubric = access.rubric_for_view(request.user, project_id, rubric_id)
    with_judges = request.method == "POST"
    if with_judges and role_in(request.user, project_id) == Role.VIEWER:
        raise PermissionDenied("Asking a model needs the role editor in the project.")
    asked = request.POST if with_judges else request.GET
    offer = offer_of(rubric, show=asked.get("show", ""), search=asked.get("q", "")[:200])
    subject = subject_of(rubric, asked.get("on", ""), offer)
    writing = writing_of(rubric)
    shown: Preview | None = None
    if subject is not None and subject.transcript is not None and writing.spec is not None:
        shown = preview(project_id, writing.spec, subject.transcript, with_judges=with_judges)
    context: dict[str, Any] = {
        "rubric": rubric,
        "offer": offer,
        "shows": SHOW,
        "subject": subject,
        "writing": writing,
        "shown": shown,
        "lines": _lines(project_id, shown),
        "cited": shown.cited if shown else frozenset(),
        "was_asked": with_judges,
    }
    if "part" in asked:
        can_edit = role_in(request.user, project_id) != Role.VIEWER
        context |= {"project": rubric.project, "can_edit": can_edit, "is_part": True}
        return render(request, "web/parts/rubric_preview.html", context)
    return page(
        request,
        "web/rubric_preview.html",
        rubric.project,
        "rubrics",
        rubric_crumbs(rubric, "Preview"),
        tabs=tabs_of(rubric, "web:rubric_preview"),
        draft=queries.draft_of(rubric),
        criteria=criteria_named(writing.spec),
        can_keep=_can_keep(subject),
        **context,
    )


def _lines(project_id: int, shown: Preview | None) -> list[Any]:
    """Each line with the judges' calls behind it."""
    if shown is None:
        return []
    ids = {id for line in shown.lines for id in line.call_ids}
    calls = regrade_queries.judge_calls(project_id, ids) if ids else {}
    return [(line, [calls[id] for id in line.call_ids if id in calls]) for line in shown.lines]


def _can_keep(subject: Subject | None) -> bool:
    return subject is not None and subject.rollout is not None


def criteria_named(spec: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Id and name of each criterion, for a choice."""
    return [
        (str(item.get("id", "")), str(item.get("name") or item.get("id", "")))
        for item in (spec or {}).get("criteria") or ()
        if isinstance(item, Mapping)
    ]
