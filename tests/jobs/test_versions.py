"""Hosts are upgraded one by one: an old worker leaves what only a new one understands."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from orchestrator.jobs import registry, services
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.lease import claim
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.services import cancel, enqueue, sweep
from tests.base import make_project

pytestmark = pytest.mark.django_db(transaction=True)


def counting(n: int = 1) -> Job:
    from orchestrator.events.services import create_stream

    stream = create_stream(project=make_project(), kind="run")
    return enqueue(kind="fault.count", spec={"stream_id": stream.pk, "n": n})


def test_a_job_of_a_newer_version_waits_for_a_newer_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    old = registry.handler_for("fault.count")
    monkeypatch.setitem(registry._handlers, "fault.count", replace(old, version=2))
    job = counting()
    assert job.version == 2

    monkeypatch.setitem(registry._handlers, "fault.count", old)
    run_attempt(job.pk)
    job.refresh_from_db()
    assert (job.state, job.attempt, job.strikes) == (JobState.QUEUED, 0, 0)

    monkeypatch.setitem(registry._handlers, "fault.count", replace(old, version=3))
    run_attempt(job.pk)
    job.refresh_from_db()
    assert (job.state, job.attempt) == (JobState.DONE, 1)


def test_a_kind_that_a_worker_does_not_know_is_left_too(monkeypatch: pytest.MonkeyPatch) -> None:
    job = counting()
    handler = registry._handlers["fault.count"]
    monkeypatch.delitem(registry._handlers, "fault.count")
    assert claim(job.pk) is None
    job.refresh_from_db()
    assert job.state == JobState.QUEUED
    cancel(job=job)
    job.refresh_from_db()
    assert job.state == JobState.CANCELLED, "what nobody can run can still be ended"
    monkeypatch.setitem(registry._handlers, "fault.count", handler)


def test_several_sweeps_at_once_announce_each_job_once(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [counting() for _ in range(20)]
    Job.objects.update(lease_until="2000-01-01T00:00Z")
    told: list[int] = []
    lock = threading.Lock()

    def announce(job_id: int, queue: str) -> bool:
        with lock:
            told.append(job_id)
        return True

    monkeypatch.setattr(services, "announce", announce)
    monkeypatch.setattr(services, "count_messages", lambda queue: 0)
    together = threading.Barrier(4)
    faults: list[Any] = []

    def sweeping() -> None:
        try:
            together.wait(60)
            sweep()
        except Exception as error:  # handed to the test
            faults.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=sweeping) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert faults == []
    assert sorted(told) == sorted(job.pk for job in jobs)
