"""The page on which a rubric is written, and what it sends. The rubric is stored as a whole."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.grading import drafts, queries
from orchestrator.grading.diff import difference
from orchestrator.grading.errors import DraftGone, DraftRefused, Stale
from orchestrator.grading.findings import read
from orchestrator.grading.models import RubricDraft
from orchestrator.projects.models import User
from orchestrator.web import rubric_access as access
from orchestrator.web import rubric_editor as editor
from orchestrator.web.frame import Crumb, page
from orchestrator.web.icons import ICONS
from orchestrator.web.rubric_tabs import tabs_of
from rubrics.models import Rubric

_ICONS = ("grip", "up", "down", "copy", "cross", "plus", "alert", "check", "undo", "edit", "spark")
"""Those that the page's module draws."""


def user_of(request: HttpRequest) -> User:
    """Views are behind `login_required`."""
    assert isinstance(request.user, User)
    return request.user


def rubric_crumbs(rubric: Rubric, here: str) -> list[Crumb]:
    return [
        Crumb("Rubrics", reverse("web:rubrics", args=[rubric.project_id])),
        Crumb(rubric.name, reverse("web:rubric", args=[rubric.project_id, rubric.pk])),
        Crumb(here),
    ]


@login_required
@require_safe
def rubric_edit(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """The draft; without one, what to begin from."""
    rubric = access.rubric_for_edit(request.user, project_id, rubric_id)
    draft = queries.draft_of(rubric)
    versions = queries.versions_of(rubric)
    return page(
        request,
        "web/rubric_edit.html",
        rubric.project,
        "rubrics",
        rubric_crumbs(rubric, "Edit"),
        rubric=rubric,
        draft=draft,
        versions=versions,
        newest=versions[0] if versions else None,
        next_number=versions[0].number + 1 if versions else 1,
        tabs=tabs_of(rubric, "web:rubric_edit"),
        data=_data(draft) if draft else None,
    )


def _data(draft: RubricDraft) -> dict[str, Any]:
    rubric = draft.rubric
    arguments = [rubric.project_id, rubric.pk]
    return {
        "spec": draft.spec,
        "state": editor.state_of(draft, read(draft.spec)),
        "kinds": editor.kinds(),
        **editor.CHOICES,
        "icons": {name: ICONS[name] for name in _ICONS},
        "published": sorted(queries.published_ids(rubric)),
        "endpoints": queries.endpoints_of(rubric.project_id),
        "completions": {
            "python": editor.python_completions(),
            "path": editor.path_completions(queries.json_answers(rubric.project_id)),
        },
        "environments": queries.environments_of(rubric.project_id),
        "suggestion": editor.suggestion(queries.newest_suggestion(rubric)),
        "urls": {
            "suggest": reverse("web:rubric_suggest", args=arguments),
            "models": reverse("web:models", args=[rubric.project_id]),
            "environments": reverse("web:environments", args=[rubric.project_id]),
            "save": reverse("web:rubric_save", args=arguments),
            "publish": reverse("web:rubric_publish", args=arguments),
            "rubric": reverse("web:rubric", args=arguments),
        },
    }


@login_required
@require_POST
def rubric_save(request: HttpRequest, project_id: int, rubric_id: int) -> JsonResponse:
    """JSON {"spec", "revision"}. 409: somebody else was first; 410: no draft; 422: refused."""
    rubric = access.rubric_for_edit(request.user, project_id, rubric_id)
    draft = queries.draft_of(rubric)
    try:
        if draft is None:
            raise DraftGone("This draft was published or discarded meanwhile.")
        spec, revision = _sent(request)
        saved = drafts.save_draft(actor=user_of(request), draft=draft, spec=spec, revision=revision)
    except DraftGone as gone:
        return JsonResponse({"error": str(gone)}, status=410)
    except DraftRefused as refusal:
        return JsonResponse({"error": str(refusal)}, status=422)
    except Stale as stale:
        return JsonResponse(
            {
                "error": str(stale),
                "spec": stale.spec,
                "revision": stale.revision,
                "by": stale.by,
                "at": stale.at.isoformat() if stale.at else None,
                "changes": editor.changes(difference(stale.spec, spec)),
            },
            status=409,
        )
    return JsonResponse(editor.state_of(saved.draft, saved.reading))


def _sent(request: HttpRequest) -> tuple[Any, int]:
    try:
        body = json.loads(request.body)
        spec, revision = body["spec"], body["revision"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DraftRefused("Send JSON with spec and revision.") from None
    if isinstance(revision, bool) or not isinstance(revision, int) or abs(revision) >= 2**31:
        raise DraftRefused("revision is a whole number.")
    return drafts.checked(spec), revision


@login_required
@require_POST
def rubric_draft_start(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """From the version that is named, else from the newest."""
    rubric = access.rubric_for_edit(request.user, project_id, rubric_id)
    wanted = request.POST.get("version", "")
    version = next((v for v in queries.versions_of(rubric) if str(v.number) == wanted), None)
    drafts.start_draft(actor=user_of(request), rubric=rubric, version=version)
    return redirect("web:rubric_edit", project_id, rubric_id)


@login_required
@require_POST
def rubric_draft_discard(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    draft = access.draft_for_edit(request.user, project_id, rubric_id)
    if drafts.discard_draft(actor=user_of(request), draft=draft):
        messages.success(request, f"{draft.rubric.name} is discarded: it had no version.")
        return redirect("web:rubrics", project_id)
    messages.success(request, "The draft is discarded. Published versions are as they were.")
    return redirect("web:rubric", project_id, rubric_id)
