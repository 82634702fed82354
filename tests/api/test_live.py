"""The API on a real server: requests at once, and events as they come."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import httpx
import pytest
from django.conf import settings

from orchestrator.api.models import IdempotentRequest
from orchestrator.environments.models import EnvironmentCheck
from orchestrator.events.services import NewEvent, append
from orchestrator.projects.models import Role
from orchestrator.projects.services import issue_token
from orchestrator.runs.models import Run
from tests.api.test_runs import asked_like
from tests.base import People
from tests.live import START_LIMIT_S, LiveStack, free_port
from tests.waiting import PATIENCE_S, wait_until
from tests.web.build import make_run

AT_ONCE = 50


@pytest.fixture(scope="module")
def web_process(
    django_db_setup: None, django_db_blocker: object, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LiveStack]:
    """The web server alone: no worker takes up what the API queues."""
    stack = LiveStack(tmp_path_factory.mktemp("web"), port=free_port(), model_port=free_port())
    server = ("uvicorn", "orchestrator.asgi:application", "--host", "127.0.0.1")
    with (stack.data / "web.out").open("ab") as out:
        stack.process = subprocess.Popen(
            [sys.executable, "-m", *server, "--port", str(stack.port), "--log-level", "warning"],
            cwd=settings.BASE_DIR,
            env=stack.full_environ(),
            stdout=out,
            stderr=out,
        )
    try:
        wait_until(stack.answers, limit_s=START_LIMIT_S, what=f"the API at {stack.url}")
        yield stack
    finally:
        stack.discard()


@pytest.fixture
def pages(transactional_db: None, web_process: LiveStack) -> LiveStack:
    return web_process


def bearer(people: People) -> dict[str, str]:
    issued = issue_token(
        actor=people.editor, project_id=people.project.pk, name="t", role=Role.EDITOR
    )
    return {"Authorization": f"Bearer {issued.secret}"}


def test_fifty_at_once_under_one_key_start_one_run(people: People, pages: LiveStack) -> None:
    like = make_run(people.project, state="completed")
    headers = {**bearer(people), "Idempotency-Key": "from-ci-4711"}
    url = f"{pages.url}/api/v1/projects/{people.project.pk}/runs"
    body, start = asked_like(like), Barrier(AT_ONCE)

    def send(_: int) -> httpx.Response:
        start.wait(timeout=PATIENCE_S)
        while True:
            answer = httpx.post(url, json=body, headers=headers, timeout=PATIENCE_S)
            if answer.status_code != 503:  # the database was busy for very long
                return answer

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(send, range(AT_ONCE)))
    assert {answer.status_code for answer in answers} == {202}, answers[0].text
    assert len({answer.text for answer in answers}) == 1
    assert sum("Idempotent-Replayed" in answer.headers for answer in answers) == AT_ONCE - 1
    assert Run.objects.exclude(pk=like.pk).count() == 1
    assert IdempotentRequest.objects.count() == 1


def events_in(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_events_come_as_they_happen_and_end_with_the_work(people: People, pages: LiveStack) -> None:
    run = make_run(people.project, state="running", ended_at=None)
    append(stream_id=run.stream_id, items=[NewEvent("run.started", {})])
    url = f"{pages.url}/api/v1/projects/{people.project.pk}/runs/{run.pk}/events"
    headers = {**bearer(people), "Accept": "text/event-stream"}
    with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_S) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = events_in(response.iter_lines())
        assert next(events)["kind"] == "run.started"
        append(stream_id=run.stream_id, items=[NewEvent("tally", {"scored": 1})])
        told = next(events)
        assert (told["seq"], told["kind"], told["payload"]) == (2, "tally", {"scored": 1})
        ended = {"state": "completed", "error": ""}
        append(stream_id=run.stream_id, items=[NewEvent("run.ended", ended)])
        assert [event["kind"] for event in events] == ["run.ended"]
    again = {**headers, "Last-Event-ID": "2"}
    with httpx.stream("GET", url, headers=again, timeout=PATIENCE_S) as response:
        assert [event["seq"] for event in events_in(response.iter_lines())] == [3]


def test_work_without_a_log_tells_its_states(people: People, pages: LiveStack) -> None:
    version = make_run(people.project).environment_version
    check = EnvironmentCheck.objects.create(version=version, state="running")
    url = f"{pages.url}/api/v1/projects/{people.project.pk}/checks/{check.pk}/events"
    headers = {**bearer(people), "Accept": "text/event-stream"}
    with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_S) as response:
        events = events_in(response.iter_lines())
        told = next(events)
        assert (told["kind"], told["payload"]["state"]) == ("state", "running")
        EnvironmentCheck.objects.filter(pk=check.pk).update(state="completed")
        assert [event["payload"]["state"] for event in events] == ["completed"]
    after = httpx.get(url, headers=bearer(people), timeout=PATIENCE_S).json()
    assert after["has_ended"] and after["events"][0]["payload"]["id"] == check.pk
