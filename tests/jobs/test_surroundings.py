"""A database or a disk that fails for a while fails no job."""

from __future__ import annotations

import errno
from collections.abc import Iterator

import pytest
from django.db import IntegrityError, InterfaceError, OperationalError
from django.utils import timezone

from orchestrator.jobs.execution import run_attempt
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, _handlers, job_handler
from orchestrator.jobs.services import enqueue

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
