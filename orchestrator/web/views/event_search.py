"""Search over everything that was said in a project's traces."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from orchestrator.events.search_text import phrases_of
from orchestrator.projects.access import project_for_view
from orchestrator.web.event_search import KINDS, LOOKED_AT, FoundPage, search_page
from orchestrator.web.frame import Crumb, page

LONGEST_QUERY = 400


@login_required
@require_safe
def event_search(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_view(request.user, project_id)
    query = request.GET.get("q", "").strip()[:LONGEST_QUERY]
    kind = request.GET.get("kind", "")
    kind = kind if kind in KINDS else ""
    before = request.GET.get("before", "")
    before_id = (
        int(before) if before.isdecimal() and before.isascii() and len(before) < 19 else None
    )
    has_words = bool(phrases_of(query))
    found = (
        search_page(project.pk, query, kind=kind, before_id=before_id)
        if has_words
        else FoundPage((), None)
    )
    return page(
        request,
        "web/event_search.html",
        project,
        "find",
        [Crumb("Search")],
        query=query,
        kind=kind,
        kinds=KINDS,
        found=found,
        has_words=has_words,
        looked_at=LOOKED_AT,
        is_later_page=before_id is not None,
        newest=urlencode({"q": query, **({"kind": kind} if kind else {})}),
    )
