"""Log lines: what they belong to, and what must not stand in them."""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import structlog
from django.core.exceptions import ImproperlyConfigured
from django.test import Client
from django.urls import reverse
from structlog.contextvars import bound_contextvars

from orchestrator import logs
from orchestrator.envvars import env_choice
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job
from orchestrator.jobs.registry import JobContext, _handlers, job_handler
from orchestrator.jobs.services import enqueue
from tests.base import People

CANARY = "swb_canary0123456789abcdef"


@pytest.fixture
def lines() -> Iterator[StringIO]:
    """What our formatter writes of everything that is logged."""
    written = StringIO()
    told = logs.logging_settings(level="INFO", form="json")["formatters"]["lines"]
    factory = told.pop("()")
    handler = logging.StreamHandler(written)
    handler.setFormatter(factory(**told))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield written
    root.removeHandler(handler)
    root.setLevel(level)


def told(lines: StringIO, event: str) -> list[dict[str, Any]]:
    every = [json.loads(line) for line in lines.getvalue().splitlines()]
    return [line for line in every if line["event"] == event]


@pytest.mark.django_db
def test_lines_of_a_job_carry_the_id_of_the_request_that_asked(lines: StringIO) -> None:
    seen: list[Any] = []

    def handler(ctx: JobContext) -> None:
        seen.append(enqueue(kind="operating.logged", spec={"is_last": True}))
        structlog.get_logger("inside").info("works")

    job_handler("operating.logged")(handler)
    try:
        with bound_contextvars(request_id="click-0001"):
            job = enqueue(kind="operating.logged", spec={})
        run_attempt(job.pk)
    finally:
        del _handlers["operating.logged"]

    for event in ("job started", "works", "job ended"):
        (line,) = told(lines, event)
        assert (line["request_id"], line["job_id"], line["attempt"]) == ("click-0001", job.pk, 1)
    made = Job.objects.get(pk=seen[0].pk)
    assert made.origin == {"request_id": "click-0001", "job_id": job.pk}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("given", "is_kept"),
    [("proxy-7f3a.2:11", True), ("short", False), ("a b c d e f g h", False), ("x" * 65, False)],
)
def test_a_request_has_one_id_in_header_log_and_problem(
    people: People, lines: StringIO, given: str, is_kept: bool
) -> None:
    client = Client()
    client.force_login(people.owner)
    answer = client.get(
        reverse("api:run", args=[people.project.pk, 987654]), headers={"X-Request-ID": given}
    )

    request_id = answer["X-Request-ID"]
    assert (request_id == given) is is_kept
    assert answer.json()["request_id"] == request_id
    assert told(lines, "request")[-1]["request_id"] == request_id


def test_no_key_stands_in_a_line(lines: StringIO) -> None:
    log = structlog.get_logger("canary")
    log.info("told", text=f"it said {CANARY}, and Authorization: Bearer abcdef-canary")
    log.info("told", headers={"Authorization": f"Bearer {CANARY}", "Accept": "text/plain"})
    log.info("told", parts=[{"a": [CANARY]}], password="canary", url="postgresql://u:canary@db/x")
    logging.getLogger("foreign").warning("quoted %s", CANARY)
    try:
        raise ValueError(f"refused {CANARY}")
    except ValueError:
        log.exception("failed")

    text = lines.getvalue()
    assert "canary" not in text.replace('"logger": "canary"', "")
    assert text.count(logs.HIDDEN) >= 7
    assert "text/plain" in text and "it said" in text


def test_a_terminal_gets_plain_lines() -> None:
    form = logs.logging_settings(level="INFO", form="console")["formatters"]["lines"]
    formatter = form.pop("()")(**form)
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "ready", None, None)

    line = formatter.format(record)

    assert "ready" in line and not line.startswith("{") and "\x1b" not in line


def test_a_child_is_told_what_its_lines_belong_to() -> None:
    assert logs.context_for_child() == {}
    with bound_contextvars(request_id="click-0001", job_id=7, secret="canary"):
        told = logs.context_for_child()

    assert json.loads(told["SWITCHBACK_LOG_CONTEXT"]) == {"request_id": "click-0001", "job_id": 7}


def test_an_unknown_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWITCHBACK_LOG_FORMAT", "xml")
    with pytest.raises(ImproperlyConfigured, match="json, console"):
        env_choice("SWITCHBACK_LOG_FORMAT", logs.FORMATS)
