"""The last look at a draft: what it changes, what it lacks, and its publishing."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods

from orchestrator.environments.authoring import queries
from orchestrator.environments.authoring.diff import Difference, difference
from orchestrator.environments.authoring.errors import DraftConflictError, DraftRefusedError
from orchestrator.environments.authoring.publish import problems_of, publish
from orchestrator.web import authoring_access as access
from orchestrator.web.frame import Crumb
from orchestrator.web.views.authoring.drafts import user_of
from orchestrator.web.views.authoring.shell import draft_page

SHOWN_TASKS = 100
"""Changed tasks in one page; the others are counted."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def draft_publish(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    draft = access.draft_for_edit(request.user, project_id, slug)
    problem, status = "", 200
    if request.method == "POST":
        revision = request.POST.get("revision", "")
        try:
            published = publish(
                actor=user_of(request),
                draft=draft,
                revision=int(revision) if revision.isdecimal() and len(revision) < 10 else -1,
                note=request.POST.get("note", ""),
            )
        except DraftRefusedError as refusal:
            problem = str(refusal)
            status = 409 if isinstance(refusal, DraftConflictError) else 422
            draft = access.draft_for_edit(request.user, project_id, slug)
        else:
            number = published.version.number
            messages.success(
                request,
                f"Version {number} is published and frozen."
                if published.is_new
                else f"Nothing had changed: this is version {number}.",
            )
            return redirect("web:environment", project_id, slug)
    problems = problems_of(draft)
    found = difference(
        queries.side_of_version(draft.base), queries.side_of_draft(draft), show_sealed=True
    )
    return draft_page(
        request,
        "web/environment_draft_publish.html",
        draft,
        "draft_publish",
        Crumb("Publish"),
        status=status,
        problem=problem,
        blockers=[item for item in problems if not item.is_warning],
        warnings=[item for item in problems if item.is_warning],
        note=request.POST.get("note", ""),
        **shown(found),
    )


def shown(found: Difference) -> dict[str, Any]:
    """A difference for a page: the first of many tasks, and how many there are."""
    return {
        "difference": found,
        "groups": [
            {"word": word, "tasks": tasks[:SHOWN_TASKS], "n": len(tasks)}
            for word, tasks in (
                ("changed", found.changed),
                ("added", found.added),
                ("removed", found.removed),
            )
            if tasks
        ],
    }
