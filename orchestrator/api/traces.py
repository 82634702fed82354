"""Traces from outside: events in, and what is stored of them out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, TypedDict

from django.http import HttpResponseBase, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.admission import admitted
from orchestrator.api.base import Endpoint, api_url, page_url
from orchestrator.api.bodies import read_body
from orchestrator.api.errors import Refused
from orchestrator.api.shapes import schema_of
from orchestrator.projects.access import project_for_edit
from orchestrator.traces.access import outside_for_view, writable_project
from orchestrator.traces.exact import Number, TooDeep, dump
from orchestrator.traces.importing import FILE_BYTES, FileRefused, import_file
from orchestrator.traces.models import OutsideRollout
from orchestrator.traces.queries import (
    csv_lines,
    events_told,
    flags_of_rollout,
    jsonl_lines,
    means_of,
)
from orchestrator.traces.reading import read_batch, read_lines
from orchestrator.traces.services import ingest

BODY_BYTES = 128 * 2**20
"""Of one request."""
_TYPES = {
    "json": "application/json",
    "jsonl": "application/x-ndjson; charset=utf-8",
    "csv": "text/csv; charset=utf-8",
}


class IngestedAnswer(TypedDict):
    accepted: int
    duplicate: Annotated[int, "That were here already."]
    rejected: Annotated[list[Any], "What was not taken in, each with its place and its reason."]
    html_url: Annotated[str, "The page that lists what was refused."]


class BroughtRollout(TypedDict):
    id: int
    url: str
    html_url: str


class TraceFileAnswer(IngestedAnswer):
    rollouts: list[BroughtRollout]


class ImportedAnswer(TypedDict):
    rollout: Annotated[Any, "Its name, as the producer gave it."]
    id: int
    html_url: str
    flags: Any
    means: dict[str, Any]
    events: list[Any]


class Ingest(Endpoint):
    """Events of rollouts that ran elsewhere."""

    area = "traces"

    @extend_schema(
        request=OpenApiTypes.OBJECT,
        responses={200: OpenApiResponse(schema_of(IngestedAnswer), description="Stored.")},
    )
    def post(self, request: Request, project_id: int) -> Response:
        """JSON lines (`application/x-ndjson`), or a JSON list; committed before the answer."""
        project = project_for_edit(request.user, project_id)
        with admitted(request) as counted:
            body = read_body(request, limit=BODY_BYTES, named="of one request")
            counted(len(body))
            if (request._request.content_type or "") == "application/json":
                try:
                    items = read_batch(body)
                except (ValueError, TooDeep, RecursionError) as error:
                    text = str(error)[:300] or "nested too deeply"
                    raise ValidationError({"body": [f"is no list of events: {text}"]}) from error
            else:
                items = list(read_lines(body))
            outcome = ingest(project=project, items=items, resolve=writable_project(request.user))
        page = page_url(request, "imports", project.pk)
        return Response({**outcome.as_json(), "html_url": page})


class TraceFiles(Endpoint):
    """Files of traces that other tools wrote."""

    area = "traces"

    @extend_schema(
        parameters=[
            OpenApiParameter(
                "name", str, description="Of the file; names a trace that has no name of its own."
            )
        ],
        request={"application/octet-stream": OpenApiTypes.BINARY},
        responses={200: OpenApiResponse(schema_of(TraceFileAnswer), description="Stored.")},
    )
    def post(self, request: Request, project_id: int) -> Response:
        """A file as it is: ATIF, training traces, a log of Inspect, events; safe to send twice."""
        project = project_for_edit(request.user, project_id)
        with admitted(request) as counted:
            body = read_body(request, limit=FILE_BYTES, named="of one file")
            counted(len(body))
            name = request.query_params.get("name", "")
            try:
                imported = import_file(project=project, name=name, content=body)
            except FileRefused as error:
                raise Refused("body", str(error)) from error
        rollouts = [
            {
                "id": rollout_id,
                "url": api_url(request, "rollout", project.pk, rollout_id),
                "html_url": page_url(request, "rollout", project.pk, rollout_id),
            }
            for rollout_id in imported.rollouts
        ]
        return Response(
            {
                **imported.outcome.as_json(),
                "html_url": page_url(request, "imports", project.pk),
                "rollouts": rollouts,
            }
        )


class Imported(Endpoint):
    """One rollout that came from outside."""

    area = "traces"

    @extend_schema(
        parameters=[
            OpenApiParameter("rollout", str, required=True),
            OpenApiParameter("as", str, enum=sorted(_TYPES)),
        ],
        responses={
            (200, "application/json"): OpenApiResponse(
                schema_of(ImportedAnswer), description="As asked for."
            ),
            (200, "application/x-ndjson"): {"type": "string"},
            (200, "text/csv"): {"type": "string"},
        },
    )
    def get(self, request: Request, project_id: int) -> HttpResponseBase:
        """Its events in the order of the producer, exactly as sent, as JSON, JSON lines or CSV."""
        owner = outside_for_view(request.user, project_id, request.query_params.get("rollout", ""))
        form = request.query_params.get("as", "json")
        if form not in _TYPES:
            raise ValidationError({"as": [f"accepts one of {', '.join(sorted(_TYPES))}"]})
        page = page_url(request, "rollout", owner.project_id, owner.rollout_id)
        make: dict[str, Callable[..., Iterator[str]]]
        make = {"json": partial(_report, page=page), "jsonl": jsonl_lines, "csv": csv_lines}
        return StreamingHttpResponse(make[form](owner), content_type=_TYPES[form])


def _report(owner: OutsideRollout, page: str) -> Iterator[str]:
    means = {
        name: None if value is None else Number(repr(value))
        for name, value in means_of(owner).items()
    }
    told = {
        "id": Number(str(owner.rollout_id)),
        "html_url": page,
        "flags": flags_of_rollout(owner),
        "means": means,
    }
    yield f'{{"rollout": {owner.name}, {dump(told)[1:-1]}, "events": ['
    sign = ""
    for event in events_told(owner):
        yield f"{sign}{event.as_json()}"
        sign = ", "
    yield "]}"
