"""The exporter of OpenTelemetry's SDK against a real server: what agents in the field send with."""

from __future__ import annotations

import json

import pytest
from django.urls import reverse
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from pytest_django.live_server_helper import LiveServer

from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from orchestrator.traces.models import OutsideRollout
from tests.base import make_people


@pytest.mark.django_db(transaction=True)
def test_an_exporter_sends_each_span_as_it_ends(live_server: LiveServer) -> None:
    people = make_people()
    issued = issue_token(
        actor=people.editor, project_id=people.project.pk, name="t", role=Role.EDITOR
    )
    exporter = OTLPSpanExporter(
        endpoint=live_server.url + reverse("api:otlp_traces", args=[people.project.pk]),
        headers={"Authorization": f"Bearer {issued.secret}"},
        compression=Compression.Gzip,
        timeout=60,
    )
    provider = TracerProvider(resource=Resource.create({"service.name": "agent"}))
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("test")
    with tracer.start_as_current_span("episode") as root:
        with tracer.start_as_current_span("chat m") as call:
            call.set_attribute("gen_ai.operation.name", "chat")
            call.set_attribute("gen_ai.completion.0.content", "hello")
        try:
            with tracer.start_as_current_span("ls") as tool:
                tool.set_attribute("gen_ai.operation.name", "execute_tool")
                raise FileNotFoundError("no such folder")
        except FileNotFoundError:
            pass
    provider.shutdown()
    owner = OutsideRollout.objects.get()
    assert json.loads(owner.name) == trace.format_trace_id(root.get_span_context().trace_id)
    told = [json.loads(body) for body in owner.events.values_list("body", flat=True)]
    parent = trace.format_span_id(root.get_span_context().span_id)
    assert [(e["name"], e["kind"], e.get("parent"), e.get("content")) for e in told] == [
        ("episode", "span", None, None),
        ("chat m", "model_call", parent, "hello"),
        ("ls", "tool_call", parent, None),
    ]
    assert told[2]["data"]["status"]["code"] == "error"
    assert told[2]["data"]["events"][0]["name"] == "exception"
