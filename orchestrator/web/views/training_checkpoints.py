"""Checkpoints: promote, download, merge."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST, require_safe

from orchestrator.trainings import checkpoints
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.web import training_access


@login_required
@require_POST
def checkpoint_promote(
    request: HttpRequest, project_id: int, job_id: int, step: int
) -> HttpResponse:
    checkpoint = training_access.checkpoint_for_edit(request.user, project_id, job_id, step)
    try:
        model = checkpoints.promote(
            actor=request.user,  # type: ignore[arg-type] # login_required
            checkpoint=checkpoint,
            name=request.POST.get("name", ""),
        )
    except TrainingRefused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, f"“{model.name}” is a model of the project now.")
    return redirect("web:training_job", project_id, job_id)


@login_required
@require_POST
def checkpoint_merge(request: HttpRequest, project_id: int, job_id: int, step: int) -> HttpResponse:
    checkpoint = training_access.checkpoint_for_edit(request.user, project_id, job_id, step)
    try:
        checkpoints.start_merge(actor=request.user, checkpoint=checkpoint)  # type: ignore[arg-type] # login_required
    except TrainingRefused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, "Merging in fp32. The page says how far the logits moved.")
    return redirect("web:training_job", project_id, job_id)


@login_required
@require_safe
def checkpoint_download(
    request: HttpRequest, project_id: int, job_id: int, step: int
) -> HttpResponse:
    checkpoint = training_access.checkpoint_for_view(request.user, project_id, job_id, step)
    try:
        content = checkpoints.packed(checkpoint)
    except TrainingRefused as refused:
        messages.error(request, str(refused))
        return redirect("web:training_job", project_id, job_id)
    response = HttpResponse(content, content_type="application/zip")
    name = f"adapter-job-{job_id}-step-{step}.zip"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
