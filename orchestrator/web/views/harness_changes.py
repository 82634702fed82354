"""Harnesses taken in from files, and changed in the browser into new ones."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from optimizer.harness import Harness
from orchestrator.harnesses import queries, services, uploads
from orchestrator.harnesses.difference import difference, order
from orchestrator.harnesses.errors import ChangeRefused, UploadRefused
from orchestrator.projects.access import project_for_edit
from orchestrator.web import harness_access as access
from orchestrator.web.frame import Crumb, page
from orchestrator.web.harness_cards import is_removable, starters_for, starting_text
from orchestrator.web.views.authoring.drafts import user_of
from orchestrator.web.views.harnesses import SECTION, harness_crumbs

MAX_FILES = settings.DATA_UPLOAD_MAX_NUMBER_FILES or 100
"""Of a folder sent as files; an archive may hold more."""


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def harness_import(request: HttpRequest, project_id: int) -> HttpResponse:
    """A zip file, or the files of a folder with their paths beside them."""
    project = project_for_edit(request.user, project_id)
    problem = ""
    if request.method == "POST":
        try:
            harness = _sent(request)
        except UploadRefused as refusal:
            problem = str(refusal)
        else:
            stored = services.add_harness(
                actor=user_of(request),
                project=project,
                harness=harness,
                label=request.POST.get("label", ""),
            )
            version = stored.version
            messages.success(
                request,
                f"{version.short} is in the library."
                if stored.is_new
                else f"The library has this harness already: {version.short}.",
            )
            return redirect("web:harness", project_id, version.pk)
    return page(
        request,
        "web/harness_import.html",
        project,
        SECTION,
        [*harness_crumbs(project_id), Crumb("Import")],
        status=422 if problem else 200,
        problem=problem,
        label=request.POST.get("label", ""),
        max_mb=uploads.MAX_UPLOAD_BYTES // 2**20,
        max_files=MAX_FILES,
    )


def _sent(request: HttpRequest) -> Harness:
    archive = request.FILES.get("archive")
    if isinstance(archive, UploadedFile):
        if (archive.size or 0) > uploads.MAX_UPLOAD_BYTES:
            raise UploadRefused(
                f"{archive.name}: {(archive.size or 0) / 2**20:.1f} MiB; the limit is "
                f"{uploads.MAX_UPLOAD_BYTES // 2**20} MiB."
            )
        return uploads.harness_of_zip(archive.read())
    files = request.FILES.getlist("files")
    if not files:
        raise UploadRefused("Choose a zip file or a folder.")
    if sum(file.size or 0 for file in files) > uploads.MAX_BYTES:
        raise UploadRefused(f"The folder has more than {uploads.MAX_BYTES // 2**20} MiB.")
    paths = _paths(request.POST.get("paths", ""), len(files))
    return uploads.harness_of(
        (path or file.name or "", file.read()) for path, file in zip(paths, files, strict=True)
    )


def _paths(text: str, n: int) -> list[str]:
    """A form sends names alone; the page adds the paths. Without them files lie side by side."""
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        found = []
    is_whole = isinstance(found, list) and len(found) == n
    return [str(path) for path in found] if is_whole else [""] * n


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def harness_edit(request: HttpRequest, project_id: int, harness_id: int) -> HttpResponse:
    """One file of a harness. What changes is shown first; what was shown can then be saved."""
    version = access.harness_for_edit(request.user, project_id, harness_id)
    texts = dict(queries.contents_of(version).texts)
    asked = request.POST if request.method == "POST" else request.GET
    path = (asked.get("file") or min(texts, key=order, default="")).strip()
    text = texts.get(path, starting_text(path))
    shown: dict[str, Any] = {}
    problem = ""
    if request.method == "POST":
        text = request.POST.get("text", "")
        is_removal = request.POST.get("what") == "remove" or request.POST.get("removal") == "1"
        try:
            after = services.changed(texts, path, None if is_removal else text)
        except ChangeRefused as refusal:
            problem = str(refusal)
        else:
            if request.POST.get("what") == "save" and request.POST.get("seen") == after.sha256:
                stored = services.add_harness(
                    actor=user_of(request),
                    project=version.project,
                    harness=after,
                    label=request.POST.get("label", ""),
                )
                messages.success(request, f"Saved as {stored.version.short}.")
                return redirect("web:harness", project_id, stored.version.pk)
            shown = {
                "components": difference(texts, after.components()),
                "seen": after.sha256,
                "short": after.short,
                "is_removal": is_removal,
                "is_late": request.POST.get("what") == "save",
            }
    return page(
        request,
        "web/harness_edit.html",
        version.project,
        SECTION,
        [
            *harness_crumbs(project_id),
            Crumb(version.short, reverse("web:harness", args=[project_id, version.pk])),
            Crumb("Edit"),
        ],
        status=422 if problem else 200,
        version=version,
        path=path,
        is_new=path not in texts,
        is_removable=path in texts and is_removable(path),
        text=text,
        label=request.POST.get("label", version.label),
        paths=sorted(texts, key=order),
        starters=starters_for(list(texts)),
        problem=problem,
        shown=shown,
    )


@login_required
@require_POST
def harness_label(request: HttpRequest, project_id: int, harness_id: int) -> HttpResponse:
    version = access.harness_for_edit(request.user, project_id, harness_id)
    services.rename_harness(
        actor=user_of(request), version=version, label=request.POST.get("label", "")
    )
    messages.success(request, "The label is changed; the harness is the same.")
    return redirect("web:harness", project_id, harness_id)
