"""Tables of tasks: chosen or pasted, looked at, taken in."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.files.uploadedfile import UploadedFile
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_http_methods, require_safe

from orchestrator.environments.authoring import uploads
from orchestrator.environments.authoring.errors import DraftConflictError, DraftRefusedError
from orchestrator.environments.authoring.export import csv_lines
from orchestrator.environments.authoring.queries import upload_effect, uploads_of
from orchestrator.environments.authoring.rows import MAX_BYTES, MAX_ERRORS, MAX_ROWS
from orchestrator.environments.kinds import KINDS
from orchestrator.environments.models import EnvironmentDraft, Split, TaskUpload
from orchestrator.environments.models.drafts import UploadState
from orchestrator.web import authoring_access as access
from orchestrator.web.frame import Crumb
from orchestrator.web.views.authoring.drafts import user_of
from orchestrator.web.views.authoring.shell import draft_page

FIRST_ROWS = 10
SHOWN_ERRORS = 100


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def draft_upload(request: HttpRequest, project_id: int, slug: str) -> HttpResponse:
    """A file or pasted rows. They are read here, in this request, and stored as a preview."""
    draft = access.draft_for_edit(request.user, project_id, slug)
    if request.method != "POST":
        return _upload_page(request, draft)
    file = request.FILES.get("file")
    pasted = request.POST.get("rows", "")
    split = request.POST.get("split", Split.TRAIN)
    if isinstance(file, UploadedFile):
        if problem := uploads.too_large(file.size or 0):
            return _upload_page(request, draft, problem=problem, pasted=pasted, split=split)
        name, content = file.name or "tasks", file.read()
    elif pasted.strip():
        name, content = "pasted rows", pasted.encode("utf-8", "surrogatepass")
    else:
        problem = "Choose a file, or paste rows."
        return _upload_page(request, draft, problem=problem, split=split)
    try:
        upload = uploads.preview_upload(
            actor=user_of(request),
            draft=draft,
            filename=name,
            content=content,
            default_split=split,
        )
    except DraftRefusedError as refusal:
        return _upload_page(request, draft, problem=str(refusal), pasted=pasted)
    return redirect("web:upload_preview", project_id, slug, upload.pk)


def _upload_page(
    request: HttpRequest,
    draft: EnvironmentDraft,
    *,
    problem: str = "",
    pasted: str = "",
    split: str = Split.TRAIN,
) -> HttpResponse:
    kind = KINDS[draft.environment.kind]
    return draft_page(
        request,
        "web/environment_draft_upload.html",
        draft,
        "draft_upload",
        Crumb("Upload"),
        status=422 if problem else 200,
        problem=problem,
        pasted=pasted,
        split=split,
        splits=Split.choices,
        fields=kind.task_fields,
        header=next(csv_lines(kind, [])).strip(),
        uploads=uploads_of(draft),
        max_mib=MAX_BYTES // 2**20,
        max_rows=MAX_ROWS,
    )


@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def upload_preview(
    request: HttpRequest, project_id: int, slug: str, upload_id: int
) -> HttpResponse:
    """What a file holds, and the choice to take it in or not."""
    upload = access.upload_for_edit(request.user, project_id, slug, upload_id)
    problem = ""
    if request.method == "POST":
        try:
            messages.success(request, _decide(request, upload))
            return redirect("web:draft", project_id, slug)
        except DraftRefusedError as refusal:
            problem = str(refusal)
            status = 409 if isinstance(refusal, DraftConflictError) else 422
        upload = access.upload_for_edit(request.user, project_id, slug, upload_id)
    return draft_page(
        request,
        "web/environment_draft_preview.html",
        upload.draft,
        "draft_upload",
        Crumb(upload.filename),
        status=status if problem else 200,
        upload=upload,
        problem=problem,
        is_open=upload.state == UploadState.PREVIEW,
        first=[row["task"] for row in upload.rows[:FIRST_ROWS]],
        errors=upload.errors[:SHOWN_ERRORS],
        n_kept_errors=len(upload.errors),
        max_errors=MAX_ERRORS,
        effect=upload_effect(upload.draft, upload),
        mode=request.POST.get("mode", "add"),
    )


def _decide(request: HttpRequest, upload: TaskUpload) -> str:
    actor = user_of(request)
    if request.POST.get("action") == "discard":
        uploads.discard_upload(actor=actor, upload=upload)
        return f"{upload.filename} is discarded. The draft is as it was."
    revision = request.POST.get("revision", "")
    applied = uploads.apply_upload(
        actor=actor,
        upload=upload,
        mode=request.POST.get("mode", ""),
        revision=int(revision) if revision.isdecimal() and len(revision) < 10 else -1,
    )
    parts = [f"{applied.n_added:,} added", f"{applied.n_changed:,} replaced"]
    if applied.n_removed:
        parts.append(f"{applied.n_removed:,} removed")
    return f"{upload.filename} is in the draft: {', '.join(parts)}."


@login_required
@require_safe
def upload_errors(
    request: HttpRequest, project_id: int, slug: str, upload_id: int
) -> StreamingHttpResponse:
    """All errors that were kept, as CSV. Cells that a spreadsheet would run get an apostrophe."""
    upload = access.upload_for_edit(request.user, project_id, slug, upload_id)

    def lines() -> Iterator[str]:
        yield _line(["line", "field", "reason", "row"])
        for error in upload.errors:
            yield _line([str(error["line"]), error["field"], error["reason"], error["raw"]])

    response = StreamingHttpResponse(lines(), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="errors-{upload.pk}.csv"'
    return response


def _line(cells: list[str]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(
        [f"'{cell}" if cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell for cell in cells]
    )
    return out.getvalue()
