"""The project as a file: exports of it, and other projects brought in. For admins."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from orchestrator.keeping.archive import services
from orchestrator.keeping.errors import KeepingRefused
from orchestrator.keeping.queries import exports_of, file_name, imports_of, pieces_of
from orchestrator.projects.access import project_for_admin
from orchestrator.projects.models import Project, User
from orchestrator.projects.storage import StorageFull, amount
from orchestrator.web.frame import Crumb, page

SHOWN = 20


@login_required
@require_safe
def archives(request: HttpRequest, project_id: int) -> HttpResponse:
    return _page(request, project_for_admin(request.user, project_id))


@login_required
@require_POST
def export_start(request: HttpRequest, project_id: int) -> HttpResponse:
    project = project_for_admin(request.user, project_id)
    try:
        services.start_export(
            actor=_user(request),
            project=project,
            with_checkpoints=request.POST.get("with_checkpoints") == "on",
        )
    except StorageFull as full:
        return _page(request, project, str(full))
    return redirect("web:archives", project.pk)


@login_required
@require_POST
def export_action(
    request: HttpRequest, project_id: int, export_id: int, action: str
) -> HttpResponse:
    """`cancel` or `remove`."""
    project = project_for_admin(request.user, project_id)
    transfer = exports_of(project).filter(pk=export_id).first()
    if transfer is None:
        raise Http404("No such object.")
    try:
        if action == "cancel":
            services.cancel(actor=_user(request), transfer=transfer)
        else:
            services.remove_file(actor=_user(request), transfer=transfer)
    except KeepingRefused as refusal:
        return _page(request, project, str(refusal))
    return redirect("web:archives", project.pk)


@login_required
@require_safe
def export_file(request: HttpRequest, project_id: int, export_id: int) -> HttpResponseBase:
    project = project_for_admin(request.user, project_id)
    transfer = exports_of(project).filter(pk=export_id).first()
    if transfer is None or not transfer.file_sha256:
        raise Http404("No such object.")
    answer = StreamingHttpResponse(pieces_of(transfer), content_type="application/zip")
    answer["Content-Length"] = str(transfer.size_bytes)
    answer["Content-Disposition"] = f'attachment; filename="{file_name(transfer)}"'
    return answer


@login_required
@require_POST
def project_import(request: HttpRequest, project_id: int) -> HttpResponse:
    """Makes another project; this one is where the page is."""
    project = project_for_admin(request.user, project_id)
    file = request.FILES.get("file")
    if not isinstance(file, UploadedFile):
        return _page(request, project, "Choose a file first.")
    try:
        services.start_import(
            actor=_user(request), file=file.chunks(), name=request.POST.get("name", "")
        )
    except KeepingRefused as refusal:
        return _page(request, project, f"{file.name}: {refusal}")
    messages.success(request, "The file is here. The project appears when all of it is read.")
    return redirect("web:archives", project.pk)


def _page(request: HttpRequest, project: Project, problem: str = "") -> HttpResponse:
    exports = list(exports_of(project)[:SHOWN])
    imports = list(imports_of(_user(request))[:SHOWN])
    return page(
        request,
        "web/archives.html",
        project,
        "settings",
        [Crumb("Settings", reverse("web:settings", args=[project.pk])), Crumb("Export and import")],
        status=422 if problem else 200,
        problem=problem,
        exports=[(each, amount(each.size_bytes)) for each in exports],
        imports=imports,
        is_open=any(not each.has_ended for each in [*exports, *imports]),
    )


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User), "login_required"
    return request.user
