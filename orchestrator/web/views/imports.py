"""Traces from elsewhere: bring a file, and see what was refused, item by item."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project
from orchestrator.traces.importing import FILE_BYTES, FileRefused, Imported, import_file
from orchestrator.traces.refusals import REASONS, refused_page
from orchestrator.web.frame import Crumb, page


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def imports(request: HttpRequest, project_id: int) -> HttpResponse:
    """Editors bring files; every member sees what was refused."""
    if request.method != "POST":
        return _page(request, project_for_view(request.user, project_id))
    project = project_for_edit(request.user, project_id)
    file = request.FILES.get("file")
    if not isinstance(file, UploadedFile):
        return _page(request, project, "Choose a file first.")
    try:
        content = file.read(FILE_BYTES + 1)
        imported = import_file(project=project, name=file.name or "", content=content)
    except FileRefused as error:
        return _page(request, project, str(error))
    messages.success(request, _told(imported))
    if imported.outcome.rejected or len(imported.rollouts) != 1:
        return redirect("web:imports", project.pk)
    return redirect("web:rollout", project.pk, imported.rollouts[0])


def _told(imported: Imported) -> str:
    outcome = imported.outcome
    parts = [f"{outcome.accepted:,} events taken in"]
    if outcome.duplicate:
        parts.append(f"{outcome.duplicate:,} were here already")
    if outcome.rejected:
        parts.append(f"{len(outcome.rejected):,} refused, listed below")
    return "; ".join(parts) + "."


def _page(request: HttpRequest, project: Project, problem: str = "") -> HttpResponse:
    reason = request.GET.get("reason", "")
    reason = reason if reason in REASONS else ""
    before = request.GET.get("before", "")
    before_id = (
        int(before) if before.isdecimal() and before.isascii() and len(before) < 19 else None
    )
    otlp = reverse("api:otlp_traces", args=[project.pk])
    return page(
        request,
        "web/imports.html",
        project,
        "runs",
        [Crumb("Runs", reverse("web:runs", args=[project.pk])), Crumb("Traces from elsewhere")],
        status=422 if problem else 200,
        problem=problem,
        found=refused_page(project.pk, reason=reason, before_id=before_id),
        reason=reason,
        reasons=REASONS.items(),
        is_later_page=before_id is not None,
        max_mib=FILE_BYTES // 2**20,
        # An exporter adds `/v1/traces` itself.
        otlp_url=request.build_absolute_uri(otlp.removesuffix("/v1/traces")),
        ingest_url=request.build_absolute_uri(reverse("api:ingest", args=[project.pk])),
    )
