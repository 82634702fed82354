"""The audit log of a project, for its admins."""

from __future__ import annotations

import json
from collections.abc import Iterator

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import reverse
from django.views.decorators.http import require_safe

from orchestrator.projects.access import project_for_admin
from orchestrator.projects.audit.queries import audit_lines, audit_page, people_in_audit
from orchestrator.web.audit_rows import row_of
from orchestrator.web.frame import Crumb, page


@login_required
@require_safe
def audit_log(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_admin(request.user, project_id)
    before = request.GET.get("before", "")
    who, about, refused = _filters(request)
    found = audit_page(
        project.pk,
        who=who,
        about=about,
        refused=refused,
        before_id=int(before) if before.isdecimal() and len(before) < 19 else None,
    )
    older = request.GET.copy()
    older["before"] = str(found.before_id or "")
    chosen = request.GET.copy()
    chosen.pop("before", None)
    return page(
        request,
        "web/audit.html",
        project,
        "settings",
        [Crumb("Settings", reverse("web:settings", args=[project.pk])), Crumb("Audit log")],
        rows=[row_of(entry) for entry in found.entries],
        older=older.urlencode() if found.before_id else "",
        chosen=chosen.urlencode(),
        is_later_page=bool(before),
        people=people_in_audit(project.pk),
        who=who,
        about=about,
        refused=refused,
    )


@login_required
@require_safe
def audit_file(request: HttpRequest, project_id: int) -> StreamingHttpResponse:
    """All entries that match, one JSON line each."""
    project = project_for_admin(request.user, project_id)
    who, about, refused = _filters(request)

    def lines() -> Iterator[str]:
        for line in audit_lines(project.pk, who=who, about=about, refused=refused):
            yield json.dumps(line, ensure_ascii=False) + "\n"

    return StreamingHttpResponse(
        lines(),
        content_type="application/x-ndjson",
        headers={"Content-Disposition": f'attachment; filename="audit-{project.pk}.jsonl"'},
    )


def _filters(request: HttpRequest) -> tuple[str, str, bool]:
    given = request.GET
    return (
        given.get("who", "")[:150],
        given.get("about", "").strip()[:100],
        bool(given.get("refused")),
    )
