"""Spans of OpenTelemetry: the address that an OTLP/HTTP exporter sends to.

The exporter's endpoint is `…/api/v1/projects/N/otlp`; it adds `/v1/traces` itself. The answer comes
after the commit. A span that was refused is told by `partialSuccess` and stands among the project's
refused items; a resend is folded and counts as taken, since the sender need not send it again.
"""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from rest_framework.exceptions import UnsupportedMediaType, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.admission import admitted
from orchestrator.api.base import Endpoint
from orchestrator.api.bodies import read_body
from orchestrator.api.traces import BODY_BYTES
from orchestrator.projects.access import project_for_edit
from orchestrator.traces.otlp import read_json, read_protobuf
from orchestrator.traces.services import Outcome, ingest

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_REASONS = 5


class OtlpTraces(Endpoint):
    area = "traces"

    @extend_schema(
        request={PROTOBUF: OpenApiTypes.BINARY, JSON: OpenApiTypes.OBJECT},
        responses={(200, JSON): OpenApiTypes.OBJECT, (200, PROTOBUF): OpenApiTypes.BINARY},
    )
    def post(self, request: Request, project_id: int) -> HttpResponse | Response:
        """Spans by OTLP/HTTP, in protobuf or JSON, plain or gzip; committed before the answer."""
        project = project_for_edit(request.user, project_id)
        form = request._request.content_type
        if form not in (PROTOBUF, JSON):
            raise UnsupportedMediaType(form or "", f"Content-Type: accepts {PROTOBUF} or {JSON}.")
        with admitted(request) as counted:
            body = read_body(request, limit=BODY_BYTES, named="of one request")
            counted(len(body))
            try:
                items = read_protobuf(body) if form == PROTOBUF else read_json(body)
            except ValueError as error:
                raise ValidationError({"body": [str(error)[:300]]}) from error
            answer = _answer(ingest(project=project, items=items))
        if form == PROTOBUF:
            return HttpResponse(answer.SerializeToString(), content_type=PROTOBUF)
        told: dict[str, Any] = MessageToDict(answer)
        return Response(told)


def _answer(outcome: Outcome) -> ExportTraceServiceResponse:
    answer = ExportTraceServiceResponse()
    if outcome.rejected:
        answer.partial_success.rejected_spans = len(outcome.rejected)
        told = [f"span {r.index}: {r.detail} ({r.reason_kind})" for r in outcome.rejected]
        more = f"; and {len(told) - _REASONS:,} more" if len(told) > _REASONS else ""
        answer.partial_success.error_message = "; ".join(told[:_REASONS]) + more
    return answer
