"""Files of tasks: read and checked first, taken into the draft as a whole after a yes."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, TypedDict

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import editing, idempotency, paging, work
from orchestrator.api.base import Endpoint, actor_of, api_url, found, operation, page_url, read
from orchestrator.api.drafts import EnvironmentDraftAnswer, drafted, held
from orchestrator.api.errors import Conflict
from orchestrator.api.making import made_once
from orchestrator.api.shapes import page_of
from orchestrator.environments.authoring import uploads
from orchestrator.environments.authoring.queries import drafts_in, uploads_in
from orchestrator.environments.models import Split, TaskUpload
from orchestrator.environments.models.drafts import UploadState
from orchestrator.projects.access import project_for_edit
from orchestrator.projects.models import Project

MOST_CHARACTERS = 64 * 2**20
SHOWN = 100


class UploadAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    filename: str
    state: Annotated[str, "preview, applied or discarded."]
    summary: Annotated[dict[str, Any], "Counts by split, rows left out, columns not used."]
    errors: Annotated[list[Any], f"[{{line, field, reason, raw}}]; the first {SHOWN}."]
    created_at: datetime.datetime


class NewUpload(serializers.Serializer[Any]):
    filename = serializers.CharField(
        max_length=200, default="rows", help_text="Ends with .csv or .jsonl; or it is guessed."
    )
    text = serializers.CharField(
        required=False, trim_whitespace=False, max_length=MOST_CHARACTERS, help_text="The rows."
    )
    content = serializers.CharField(
        required=False, max_length=MOST_CHARACTERS, help_text="Or the file's bytes, in base64."
    )
    split = serializers.ChoiceField(
        Split.choices, default=Split.TRAIN, help_text="Of rows that name none."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("text" in attrs) == ("content" in attrs):
            raise serializers.ValidationError("accepts exactly one of text, content")
        return attrs


class UploadUse(serializers.Serializer[Any]):
    mode = serializers.ChoiceField(
        ["add", "replace"], help_text="add: equal keys are replaced; replace: all others go."
    )


class DraftUploads(Endpoint):
    area = "environments"

    @operation(page_of(UploadAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, slug: str) -> Response:
        """Files that were read for the draft, newest first. Editors."""
        project = project_for_edit(request.user, project_id)
        draft = found(drafts_in(project.pk), environment__slug=slug)
        return Response(
            paging.paged(
                request,
                uploads_in(project.pk).filter(draft=draft),
                lambda rows: [upload_answer(request, row) for row in rows],
                html_url=page_url(request, "draft_upload", project.pk, slug),
            )
        )

    @operation(
        UploadAnswer,
        body=NewUpload,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="Read; nothing of it is in the draft yet.",
    )
    def post(self, request: Request, project_id: int, slug: str) -> Response:
        """Reads a table of tasks, CSV or JSON lines. Editors."""
        project = project_for_edit(request.user, project_id)
        draft = found(drafts_in(project.pk), environment__slug=slug)
        asked = read(NewUpload, request.data)
        content = _content(asked)
        if problem := uploads.too_large(len(content)):
            raise ValidationError({"content": [problem]})
        return made_once(
            request,
            lambda: uploads.preview_upload(
                actor=actor_of(request),
                draft=draft,
                filename=asked["filename"],
                content=content,
                default_split=asked["split"],
            ),
            lambda upload: upload_answer(request, upload),
        )


class DraftUploadDetail(Endpoint):
    area = "environments"

    @operation(UploadAnswer)
    def get(self, request: Request, project_id: int, slug: str, upload_id: int) -> Response:
        """One file with what was found in it. Editors."""
        project = project_for_edit(request.user, project_id)
        return Response(upload_answer(request, _found(project, slug, upload_id)))

    @operation(None, status=204, says="Discarded; the draft is as it was.")
    def delete(self, request: Request, project_id: int, slug: str, upload_id: int) -> Response:
        """Discards a file that was not applied. Editors."""
        project = project_for_edit(request.user, project_id)
        upload = _found(project, slug, upload_id)
        if upload.state != UploadState.PREVIEW:
            raise Conflict(f"The file was {upload.state} before.")
        uploads.discard_upload(actor=actor_of(request), upload=upload)
        return Response(status=204)


class DraftUploadApply(Endpoint):
    area = "environments"

    @operation(EnvironmentDraftAnswer, body=UploadUse, parameters=[editing.PARAMETER])
    def post(self, request: Request, project_id: int, slug: str, upload_id: int) -> Response:
        """Takes all good rows of a file into the draft. Editors."""
        project = project_for_edit(request.user, project_id)
        upload = _found(project, slug, upload_id)
        with held(request, project, slug) as draft:
            asked = read(UploadUse, request.data)
            uploads.apply_upload(
                actor=actor_of(request),
                upload=upload,
                mode=asked["mode"],
                revision=draft.revision,
            )
        return drafted(request, found(drafts_in(project.pk), environment__slug=slug))


def _found(project: Project, slug: str, upload_id: int) -> TaskUpload:
    return found(uploads_in(project.pk), draft__environment__slug=slug, pk=upload_id)


def _content(asked: dict[str, Any]) -> bytes:
    if "text" in asked:
        text: str = asked["text"]
        return text.encode("utf-8", "surrogatepass")
    return work.bytes_of(asked["content"], "content")


def upload_answer(request: Request, upload: TaskUpload) -> UploadAnswer:
    environment = upload.draft.environment
    where = (environment.project_id, environment.slug, upload.pk)
    return {
        "id": upload.pk,
        "url": api_url(request, "draft_upload", *where),
        "html_url": page_url(request, "upload_preview", *where),
        "filename": upload.filename,
        "state": upload.state,
        "summary": upload.summary,
        "errors": upload.errors[:SHOWN],
        "created_at": upload.created_at,
    }
