"""A database or a disk that fails for a while fails no job."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError, connection
from django.utils import timezone

from orchestrator.api import runs
from orchestrator.jobs import lease
from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, _handlers, job_handler
from orchestrator.jobs.services import enqueue, sweep
from orchestrator.jobs.surroundings import is_away
from tests.api.client import problem_in, program_of
from tests.base import People

pytestmark = pytest.mark.django_db

FULL = OSError(errno.ENOSPC, "No space left on device")
PASSING = [
    OperationalError("database or disk is full"),
    InterfaceError("the connection is closed"),
    FULL,
    ExceptionGroup("unhandled", [ExceptionGroup("inner", [ValueError("late"), FULL])]),
]


@pytest.fixture
def raised() -> Iterator[list[Exception]]:
    """What the handler raises, one after the other; then it is done."""
    errors: list[Exception] = []

    @job_handler("test.surroundings")
    def run(ctx: JobContext) -> None:
        if errors:
            raise errors.pop(0)

    yield errors
    del _handlers["test.surroundings"]


def attempt(job: Job) -> Job:
    Job.objects.filter(pk=job.pk).update(not_before=None, lease_until=timezone.now())
    run_attempt(job.pk)
    job.refresh_from_db()
    return job


@pytest.mark.parametrize("error", PASSING)
def test_it_is_tried_again(error: Exception, raised: list[Exception]) -> None:
    raised.append(error)
    job = attempt(enqueue(kind="test.surroundings", spec={}))
    assert job.state == JobState.QUEUED
    assert job.error in (
        "OperationalError: database or disk is full",
        "InterfaceError: the connection is closed",
        "OSError: [Errno 28] No space left on device",
    )
    assert attempt(job).state == JobState.DONE


def test_it_fails_with_the_reason_when_the_disk_stays_full(raised: list[Exception]) -> None:
    raised += [FULL, FULL]
    job = enqueue(kind="test.surroundings", spec={}, max_attempts=2)
    assert attempt(job).state == JobState.QUEUED
    assert attempt(job).state == JobState.FAILED
    assert job.error == "OSError: [Errno 28] No space left on device (after 2 attempts)"


@pytest.mark.parametrize("error", [IntegrityError("twice"), OSError(errno.ENOENT, "no such file")])
def test_a_mistake_is_not_repeated(error: Exception, raised: list[Exception]) -> None:
    raised.append(error)
    assert attempt(enqueue(kind="test.surroundings", spec={})).state == JobState.FAILED


def test_a_group_of_errors_says_what_its_first_one_says(raised: list[Exception]) -> None:
    raised.append(ExceptionGroup("unhandled", [KeyError("missing"), ValueError("late")]))
    job = attempt(enqueue(kind="test.surroundings", spec={}))
    assert (job.state, job.error) == (JobState.FAILED, "KeyError: 'missing'")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationalError("database or disk is full"), True),
        (OperationalError("attempt to write a readonly database"), True),
        (InterfaceError("the connection is closed"), True),
        (OperationalError("too many SQL variables"), False),
        (IntegrityError("twice"), False),
    ],
)
def test_what_a_client_may_send_again(error: Exception, expected: bool) -> None:
    if connection.vendor == "sqlite":
        assert is_away(error) is expected


def test_the_api_says_so(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise InterfaceError("the connection is closed")

    monkeypatch.setattr(runs, "project_for_view", refuse)
    answer = program_of(people.editor, people.project).get("runs", people.project.pk)
    told = problem_in(answer, 503)
    assert answer["Retry-After"] == "5"
    assert "Idempotency-Key" in told["detail"]


def test_a_clock_that_was_ahead_keeps_no_job_waiting(raised: list[Exception]) -> None:
    queued = enqueue(kind="test.surroundings", spec={})
    running = enqueue(kind="test.surroundings", spec={})
    assert lease.claim(running.pk) is not None
    Job.objects.update(announced_at=timezone.now() + timedelta(hours=1))
    Job.objects.filter(pk=queued.pk).update(lease_until=timezone.now() + timedelta(hours=1))
    Job.objects.filter(pk=running.pk).update(lease_until=timezone.now() - timedelta(seconds=1))
    assert sweep() == 2
    assert sweep() == 0
