"""A whole tree of processes: who says that it lives, and what its logs belong to."""

from __future__ import annotations

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.contextvars import bound_contextvars

from orchestrator.events.services import create_stream
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.services import enqueue
from orchestrator.processes.models import Process
from tests.base import People
from tests.live import MakeStack
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]


def kinds() -> list[str]:
    return sorted(Process.objects.values_list("kind", flat=True))


def test_all_processes_are_seen_from_one_and_lines_of_a_job_name_its_request(
    make_stack: MakeStack, people: People
) -> None:
    stream = create_stream(project=people.project, kind="run")
    stack = make_stack(environ={"SWITCHBACK_PROCESS_BEAT_S": "0.5"})
    stack.start()
    wanted = ["sweep", "web", "worker", "worker"]
    wait_until(lambda: kinds() == wanted, limit_s=120, what=f"signs of life of {wanted}")

    with bound_contextvars(request_id="click-0001"):
        job = enqueue(kind="fault.count", spec={"stream_id": stream.pk, "n": 1})
    wait_until(
        lambda: Job.objects.get(pk=job.pk).state == JobState.DONE, limit_s=120, what="the job"
    )

    def counted() -> float:
        text = httpx.get(f"{stack.url}/metrics", timeout=60).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == "switchback_jobs_ended_total"
            and (sample.labels["process"], sample.labels["outcome"]) == ("worker", "done")
        )

    wait_until(lambda: counted() == 1, limit_s=120, what="the worker's figures at the web process")
    ready = httpx.get(f"{stack.url}/readyz", timeout=60)
    assert ready.json()["status"] in ("ready", "degraded")
    lines = [line for line in stack.log_records("worker") if line.get("job_id") == job.pk]
    assert {line["event"] for line in lines} >= {"job started", "job ended"}
    assert {line["request_id"] for line in lines} == {"click-0001"}
