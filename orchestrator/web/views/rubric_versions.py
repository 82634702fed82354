"""Versions of a rubric: compared by criterion, and as JSON, taken away and brought in."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.text import slugify
from django.views.decorators.http import require_http_methods, require_safe

from orchestrator.grading import drafts, queries
from orchestrator.grading.diff import difference
from orchestrator.grading.errors import DraftGone, DraftRefused, Stale
from orchestrator.grading.models import RubricDraft
from orchestrator.projects.access import role_in
from orchestrator.projects.models import Role
from orchestrator.web import rubric_access as access
from orchestrator.web.frame import page
from orchestrator.web.rubric_tabs import tabs_of
from orchestrator.web.views.rubric_editor import rubric_crumbs, user_of
from rubrics.models import Rubric, RubricVersion

DRAFT = "draft"


@login_required
@require_safe
def rubric_versions(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """Any two of them, the draft too; the newest two unless the address names others."""
    rubric = access.rubric_for_view(request.user, project_id, rubric_id)
    versions = queries.versions_of(rubric)
    draft = queries.draft_of(rubric) if _may_edit(request, rubric) else None
    sides: dict[str, Any] = {DRAFT: draft.spec} if draft else {}
    sides.update({str(version.number): version.spec for version in versions})
    names = list(sides)
    after = _known(request.GET.get("to"), names) or (names[0] if names else "")
    older = names[names.index(after) + 1 :] if after else []
    before = _known(request.GET.get("from"), names) or (older[0] if older else "")
    return page(
        request,
        "web/rubric_versions.html",
        rubric.project,
        "rubrics",
        rubric_crumbs(rubric, "Versions"),
        rubric=rubric,
        versions=versions,
        names=names,
        before=before,
        after=after,
        found=difference(sides.get(before, {}), sides.get(after, {})),
        tabs=tabs_of(rubric, "web:rubric_versions"),
    )


def _known(name: str | None, names: list[str]) -> str:
    return name if name in names else ""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def rubric_json(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    """The rubric as text. Editors store a text as the draft; it may be unfinished."""
    rubric = access.rubric_for_view(request.user, project_id, rubric_id)
    is_editor = _may_edit(request, rubric)
    problem, typed, status = "", None, 200
    if request.method == "POST":
        typed = _typed(request)
        try:
            _take(request, access.rubric_for_edit(request.user, project_id, rubric_id), typed)
        except (DraftRefused, DraftGone) as refusal:
            problem, status = str(refusal), 422
        except Stale as stale:
            problem, status = f"{stale} Your text is below; nothing of it is stored.", 409
        else:
            messages.success(request, "The text is stored as the draft.")
            return redirect("web:rubric_edit", project_id, rubric_id)
    draft = queries.draft_of(rubric) if is_editor else None
    item, name = _item(rubric, draft, request.GET.get("version", ""))
    return page(
        request,
        "web/rubric_json.html",
        rubric.project,
        "rubrics",
        rubric_crumbs(rubric, "JSON"),
        status=status,
        rubric=rubric,
        draft=draft,
        places=[
            *([{"name": DRAFT, "query": "?"}] if draft else []),
            *(
                {"name": f"v{version.number}", "query": f"?version={version.number}"}
                for version in queries.versions_of(rubric)
            ),
        ],
        name=name,
        text=typed if typed is not None else _pretty(item.spec) if item else "",
        revision=draft.revision if draft else -1,
        problem=problem,
        tabs=tabs_of(rubric, "web:rubric_json"),
    )


@login_required
@require_safe
def rubric_export(request: HttpRequest, project_id: int, rubric_id: int) -> HttpResponse:
    rubric = access.rubric_for_view(request.user, project_id, rubric_id)
    draft = queries.draft_of(rubric) if _may_edit(request, rubric) else None
    item, name = _item(rubric, draft, request.GET.get("version", ""))
    if item is None:
        raise Http404("There is nothing to export yet.")
    filename = f"{slugify(rubric.name) or 'rubric'}-{name}.json"
    return HttpResponse(
        _pretty(item.spec) + "\n",
        content_type="application/json",
        headers={"Content-Disposition": f'attachment; filename="{filename}"'},
    )


def _may_edit(request: HttpRequest, rubric: Rubric) -> bool:
    return role_in(request.user, rubric.project_id) in (Role.EDITOR, Role.ADMIN)


def _item(
    rubric: Rubric, draft: RubricDraft | None, wanted: str
) -> tuple[RubricDraft | RubricVersion | None, str]:
    """The named one, else the draft, else the newest version."""
    versions = queries.versions_of(rubric)
    for version in versions:
        if str(version.number) == wanted:
            return version, f"v{version.number}"
    if draft is not None:
        return draft, DRAFT
    return (versions[0], f"v{versions[0].number}") if versions else (None, "")


def _typed(request: HttpRequest) -> str:
    upload = request.FILES.get("file")
    if upload is None:
        return request.POST.get("text", "")
    return str(upload.read(drafts.MAX_BYTES + 1), "utf-8", errors="replace")


def _take(request: HttpRequest, rubric: Rubric, text: str) -> None:
    """Stores it on top of the draft that the page showed; starts one where there was none."""
    try:
        spec = json.loads(text)
    except json.JSONDecodeError as exc:
        raise DraftRefused(f"Line {exc.lineno}, column {exc.colno}: {exc.msg}.") from None
    except RecursionError:
        raise DraftRefused("The text is nested too deeply.") from None
    spec = drafts.checked(spec)
    seen = request.POST.get("revision", "")
    if seen == "-1":
        draft = drafts.start_draft(actor=user_of(request), rubric=rubric)
        revision = 0
    else:
        found = queries.draft_of(rubric)
        if found is None:
            raise DraftGone("This draft was published or discarded meanwhile.")
        draft, revision = found, int(seen) if seen.isdecimal() and len(seen) < 10 else -1
    drafts.save_draft(actor=user_of(request), draft=draft, spec=spec, revision=revision)


def _pretty(spec: Any) -> str:
    return json.dumps(spec, indent=2, ensure_ascii=False)
