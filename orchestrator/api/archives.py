"""Projects as files: exports of a project, and imports that make a new one."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypedDict

from django.http import Http404, HttpResponseBase, StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import following, idempotency, paging
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    api_url,
    conflicts,
    created,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.shapes import page_of, schema_of
from orchestrator.keeping.archive import services
from orchestrator.keeping.models import Transfer
from orchestrator.keeping.queries import exports_of, file_name, imports_of, pieces_of
from orchestrator.projects.access import project_for_admin

ZIP = "application/zip"
_CHUNK = 1 << 20


class TransferAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    events_url: str
    name: Annotated[str, "Of the project."]
    project: Annotated[int | None, "Its id; null until an import is whole."]
    state: str
    has_ended: bool
    with_checkpoints: bool
    doing: str
    done: Annotated[int, "Rows so far."]
    total: Annotated[int, "Rows in all; 0 while it is not known."]
    size_bytes: int
    file_url: Annotated[str | None, "Null where there is no file."]
    summary: Annotated[
        dict[str, Any], "Rows by table, endpoints that need a key, and what was left out."
    ]
    error: str
    created_at: datetime.datetime
    ended_at: datetime.datetime | None


class NewExport(serializers.Serializer[Any]):
    with_checkpoints = serializers.BooleanField(
        default=False, help_text="Adapters of trainings, which are most of the bytes."
    )


class Exports(Endpoint):
    area = "project"

    @operation(page_of(TransferAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The exports of a project, newest first. Admins."""
        project = project_for_admin(request.user, project_id)
        return Response(
            paging.paged(
                request,
                exports_of(project),
                lambda rows: [export_answer(request, row) for row in rows],
                html_url=page_url(request, "archives", project.pk),
            )
        )

    @operation(
        TransferAnswer,
        body=NewExport,
        parameters=[idempotency.PARAMETER],
        status=202,
        says="Queued; one that is under way is answered instead of a second.",
    )
    def post(self, request: Request, project_id: int) -> Response:
        """Writes the project into one file. Admins."""
        project = project_for_admin(request.user, project_id)
        asked = read(NewExport, request.data)

        def start() -> Response:
            transfer = services.start_export(
                actor=actor_of(request),
                project=project,
                with_checkpoints=asked["with_checkpoints"],
            )
            answer = export_answer(request, transfer)
            return created(request, answer, answer["url"], status=202)

        return idempotency.once(request, start)


class _Export(Endpoint):
    area = "project"

    @staticmethod
    def export(request: Request, project_id: int, export_id: int) -> Transfer:
        project = project_for_admin(request.user, project_id)
        return found(exports_of(project), pk=export_id)


class ExportDetail(_Export):
    @operation(TransferAnswer)
    def get(self, request: Request, project_id: int, export_id: int) -> Response:
        """One export. Admins."""
        return Response(export_answer(request, self.export(request, project_id, export_id)))

    @operation(None, status=204, says="Its file is gone; the export stays listed.")
    def delete(self, request: Request, project_id: int, export_id: int) -> Response:
        """Removes its file. Admins."""
        transfer = self.export(request, project_id, export_id)
        with conflicts():
            services.remove_file(actor=actor_of(request), transfer=transfer)
        return Response(status=204)


class ExportCancel(_Export):
    @operation(TransferAnswer, status=202, says="Asked for.")
    def post(self, request: Request, project_id: int, export_id: int) -> Response:
        """Cancels it. Admins."""
        transfer = self.export(request, project_id, export_id)
        services.cancel(actor=actor_of(request), transfer=transfer)
        transfer.refresh_from_db()
        return Response(export_answer(request, transfer), status=202)


class ExportFile(_Export):
    @extend_schema(
        responses={
            (200, ZIP): OpenApiResponse({"type": "string", "format": "binary"}, description="It.")
        }
    )
    def get(self, request: Request, project_id: int, export_id: int) -> HttpResponseBase:
        """The file. Admins."""
        transfer = self.export(request, project_id, export_id)
        if not transfer.file_sha256:
            raise Http404("There is no file.")
        return file_answer(transfer)


class ExportEvents(_Export):
    @following.documented
    def get(self, request: Request, project_id: int, export_id: int) -> HttpResponseBase:
        """How far it has come, or as it comes. Admins."""
        project = project_for_admin(request.user, project_id)

        def look() -> Mapping[str, Any]:
            return export_answer(request, found(exports_of(project), pk=export_id))

        return following.states_answer(request, look)


class Imports(Endpoint):
    area = "project"

    @operation(page_of(TransferAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request) -> Response:
        """The imports that the caller has asked for, newest first."""
        return Response(
            paging.paged(
                request,
                imports_of(actor_of(request)),
                lambda rows: [import_answer(request, row) for row in rows],
                html_url=page_url(request, "home"),
            )
        )

    @extend_schema(
        request={ZIP: {"type": "string", "format": "binary"}},
        parameters=[
            OpenApiParameter("name", str, description="Of the new project; the exported one's.")
        ],
        responses={202: OpenApiResponse(schema_of(TransferAnswer), description="Queued.")},
    )
    def post(self, request: Request) -> Response:
        """Makes a project of an exported file, with the caller as its admin. The body is the file.
        Not with a token, which is of one project.
        """
        user = actor_of(request)
        if getattr(user, "api_token", None) is not None:
            raise PermissionDenied("A token is of one project and makes no other; sign in.")
        name = request.query_params.get("name", "")
        transfer = services.start_import(actor=user, file=_chunks(request), name=name)
        answer = import_answer(request, transfer)
        return created(request, answer, answer["url"], status=202)


class _Import(Endpoint):
    area = "project"

    @staticmethod
    def imported(request: Request, import_id: int) -> Transfer:
        return found(imports_of(actor_of(request)), pk=import_id)


class ImportDetail(_Import):
    @operation(TransferAnswer)
    def get(self, request: Request, import_id: int) -> Response:
        """One import of the caller."""
        return Response(import_answer(request, self.imported(request, import_id)))


class ImportCancel(_Import):
    @operation(TransferAnswer, status=202, says="Asked for; what was half there is taken away.")
    def post(self, request: Request, import_id: int) -> Response:
        """Cancels it."""
        transfer = self.imported(request, import_id)
        services.cancel(actor=actor_of(request), transfer=transfer)
        transfer.refresh_from_db()
        return Response(import_answer(request, transfer), status=202)


class ImportEvents(_Import):
    @following.documented
    def get(self, request: Request, import_id: int) -> HttpResponseBase:
        """How far it has come, or as it comes."""

        def look() -> Mapping[str, Any]:
            return import_answer(request, self.imported(request, import_id))

        return following.states_answer(request, look)


def file_answer(transfer: Transfer) -> StreamingHttpResponse:
    named = f'attachment; filename="{file_name(transfer)}"'
    headers = {"Content-Length": str(transfer.size_bytes), "Content-Disposition": named}
    return StreamingHttpResponse(pieces_of(transfer), content_type=ZIP, headers=headers)


def _chunks(request: Request) -> Iterator[bytes]:
    while chunk := request._request.read(_CHUNK):
        yield chunk


def export_answer(request: Request, transfer: Transfer) -> TransferAnswer:
    where = (transfer.project_id, transfer.pk)
    file_url = api_url(request, "export_file", *where) if transfer.file_sha256 else None
    return _answer(
        transfer,
        url=api_url(request, "export", *where),
        html_url=page_url(request, "archives", transfer.project_id),
        events_url=api_url(request, "export_events", *where),
        file_url=file_url,
    )


def import_answer(request: Request, transfer: Transfer) -> TransferAnswer:
    return _answer(
        transfer,
        url=api_url(request, "import", transfer.pk),
        html_url=page_url(request, "home"),
        events_url=api_url(request, "import_events", transfer.pk),
        file_url=None,
    )


def _answer(
    transfer: Transfer, *, url: str, html_url: str, events_url: str, file_url: str | None
) -> TransferAnswer:
    return {
        "id": transfer.pk,
        "url": url,
        "html_url": html_url,
        "events_url": events_url,
        "name": transfer.name,
        "project": transfer.project_id,
        "state": transfer.state,
        "has_ended": transfer.has_ended,
        "with_checkpoints": transfer.with_checkpoints,
        "doing": transfer.doing,
        "done": transfer.done,
        "total": transfer.total,
        "size_bytes": transfer.size_bytes,
        "file_url": file_url,
        "summary": transfer.summary,
        "error": transfer.error,
        "created_at": transfer.created_at,
        "ended_at": transfer.ended_at,
    }
