"""Traces of our own work arrive at a real receiver, whole and without what was said."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from orchestrator import tracing
from orchestrator.checks import check_tracing
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job
from orchestrator.management.supervisor import STOP_S
from orchestrator.runs.models import Rollout, Run
from orchestrator.runs.services import start_run
from tests.base import People
from tests.operating.receiver import Receiver, attributes, receiver
from tests.runs.conftest import MakeModel, fault_url, make_model
from tests.runs.drive import good, make_endpoint, make_run, make_version

__all__ = ["fault_url", "make_model"]


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """Tracing is on until the test ends."""
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    with receiver() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        assert tracing.start("web", "0.1.0")
        try:
            yield found
        finally:
            tracing.stop()


@pytest.mark.django_db(transaction=True)
def test_a_request_is_followed_through_its_job_to_model_calls_and_steps(
    people: People, fault_url: str, make_model: MakeModel, received: Receiver
) -> None:
    model = make_model(good)
    run = make_run(
        people.project,
        version=make_version(people.project, fault_url),
        model=make_endpoint(people.project, model.url),
    )
    with tracing.span("request", role="server"):
        start_run(run=run)
    run.refresh_from_db()
    assert run.job_id is not None
    run_attempt(run.job_id)
    tracing.stop()

    request, (job,) = received.named("request")[0], received.named("job runs.execute")
    rollouts = received.named("rollout")
    assert received.parent_of(job).span_id == request.span_id
    assert attributes(job)["job.id"] == run.job_id
    assert attributes(job)["job.outcome"] == "done"
    told = {attributes(one)["rollout.id"] for one in rollouts}
    assert told == set(Rollout.objects.filter(run=run).values_list("pk", flat=True))
    assert {received.parent_of(one).span_id for one in rollouts} == {job.span_id}
    for name in ("model call", "environment step"):
        found = received.named(name)
        assert found, name
        assert {received.parent_of(one).name for one in found} == {"rollout"}
    assert {one.trace_id for one in received.spans} == {request.trace_id}
    assert received.resources[0]["service.name"] == "switchback-web"
    sent = b"".join(received.raw)
    assert b"Task 0" not in sent and b'"op"' not in sent, "no prompt and no answer is sent"
    assert Run.objects.get(pk=run.pk).state == "completed"


@pytest.mark.django_db
def test_a_request_goes_on_with_the_callers_trace_and_has_the_name_of_its_route(
    people: People, received: Receiver
) -> None:
    client = Client()
    client.force_login(people.owner)
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    client.get(
        reverse("web:settings", args=[people.project.pk]),
        headers={"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"},
    )
    client.get("/healthz")
    tracing.stop()

    (span,) = received.spans
    assert span.name == "GET /p/<int:project_id>/settings/"
    assert span.trace_id.hex() == trace_id
    assert attributes(span)["http.response.status_code"] == 200


def test_a_receiver_that_is_away_keeps_nobody_from_ending() -> None:
    code = (
        "from orchestrator import tracing\n"
        "assert tracing.start('web', '0')\n"
        "with tracing.span('work'): print('worked')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=settings.BASE_DIR,
        env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (0, "worked\n"), ended.stderr
    assert tracing.LAST_S < STOP_S, "the supervisor waits for so long"


@pytest.mark.django_db
def test_without_a_receiver_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in tracing.ENDPOINT_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert tracing.start("web", "0.1.0") is False

    with tracing.span("a") as one, tracing.span("b", {"c": 1}, role="client") as other:
        assert one is other
        assert tracing.traceparent() == "" and tracing.ids() == {}
    assert Job._meta.get_field("origin").default is dict


def test_a_receiver_without_the_packages_is_refused_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert check_tracing() == []
    monkeypatch.setattr(tracing, "is_installed", lambda: False)
    assert [one.id for one in check_tracing()] == ["switchback.E012"]
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    assert check_tracing() == []


def test_spans_say_why_work_failed_and_quote_nobody(received: Receiver) -> None:
    def fails() -> Any:
        with tracing.span("work"):
            raise ValueError("key sk-canary-0123456789")

    with pytest.raises(ValueError, match="canary"):
        fails()
    tracing.stop()

    (span,) = received.spans
    assert (span.status.code, span.status.message) == (2, "ValueError")
    assert b"canary" not in b"".join(received.raw)
