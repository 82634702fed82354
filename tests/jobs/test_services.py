from __future__ import annotations

import socket
import subprocess
import threading
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from orchestrator.jobs import lease
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, _handlers, job_handler
from orchestrator.jobs.services import (
    cancel,
    end_leases_of_dead_workers,
    enqueue,
    silence_s,
    sweep,
)

pytestmark = pytest.mark.django_db(transaction=True)


def job(**overrides: Any) -> Job:
    return enqueue(**{"kind": "fault.raise", "spec": {}, **overrides})


def test_a_key_makes_enqueueing_idempotent() -> None:
    assert job(key="run-1").pk == job(key="run-1").pk
    assert job().pk != job().pk


def test_an_unknown_kind_or_queue_is_refused() -> None:
    with pytest.raises(ValueError, match=r"fault\.raise"):
        job(kind="no.such")
    with pytest.raises(ValueError, match="rollouts"):
        job(queue="slow")


def test_only_one_of_two_claims_wins() -> None:
    waiting = job()
    assert lease.claim(waiting.pk) is not None
    assert lease.claim(waiting.pk) is None


def test_an_ended_lease_may_be_taken_over_and_the_first_holder_is_out() -> None:
    first = lease.claim(job().pk)
    assert first is not None
    Job.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert lease.beat(first.fence) is False  # late, but nobody took over
    Job.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    second = lease.claim(first.job.pk)
    assert second is not None
    assert second.fence.attempt == 2
    assert lease.beat(first.fence) is None
    assert not lease.finish(first.fence)
    assert not lease.fail(first.fence, error="late")
    assert lease.finish(second.fence)


def test_a_delayed_job_waits_for_its_time() -> None:
    delayed = job(not_before=timezone.now() + timedelta(hours=1))
    assert lease.claim(delayed.pk) is None
    assert sweep() == 0
    Job.objects.update(not_before=timezone.now(), lease_until=timezone.now())
    assert sweep() == 1
    assert lease.claim(delayed.pk) is not None


def test_a_released_job_has_lost_no_attempt() -> None:
    released = lease.claim(job(max_attempts=1).pk)
    assert released is not None
    assert lease.release(released.fence)
    again = lease.claim(released.job.pk)
    assert again is not None
    assert again.fence.attempt == 2


def test_progress_forgives_earlier_crashes() -> None:
    claimed = lease.claim(job(max_attempts=2).pk)
    for _ in range(4):
        assert claimed is not None
        ctx = JobContext(
            job_id=claimed.job.pk, spec={}, fence=claimed.fence, stop=threading.Event()
        )
        ctx.progress()
        Job.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
        claimed = lease.claim(claimed.job.pk)
    assert claimed is not None


def test_retries_end_with_the_last_reason() -> None:
    claimed = lease.claim(job(max_attempts=2).pk)
    assert claimed is not None
    assert lease.retry(claimed.fence, error="first", delay_s=0)
    claimed = lease.claim(claimed.job.pk)
    assert claimed is not None
    assert lease.retry(claimed.fence, error="second", delay_s=0)
    claimed.job.refresh_from_db()
    assert (claimed.job.state, claimed.job.error) == (JobState.FAILED, "second (after 2 attempts)")


def test_a_cancelled_job_of_a_dead_worker_does_not_start_again() -> None:
    claimed = lease.claim(job().pk)
    assert claimed is not None
    cancel(job=claimed.job)
    Job.objects.update(lease_until=timezone.now() - timedelta(seconds=1))
    assert lease.claim(claimed.job.pk) is None
    claimed.job.refresh_from_db()
    assert claimed.job.state == JobState.CANCELLED


def test_the_owner_is_told_of_an_unfinished_end_once() -> None:
    told: list[tuple[str, str]] = []

    @job_handler("test.told", on_unfinished=lambda ended: told.append((ended.state, ended.error)))
    def run(ctx: JobContext) -> None: ...

    try:
        claimed = lease.claim(job(kind="test.told").pk)
        assert claimed is not None
        assert lease.fail(claimed.fence, error="broken")
        assert not lease.fail(claimed.fence, error="broken")
        cancel(job=job(kind="test.told"))
    finally:
        del _handlers["test.told"]
    assert told == [("failed", "broken"), ("cancelled", "")]


def test_a_broken_owner_does_not_keep_the_job_alive() -> None:
    def raise_(ended: Job) -> None:
        raise KeyError("owner is gone")

    @job_handler("test.broken", on_unfinished=raise_)
    def run(ctx: JobContext) -> None: ...

    try:
        claimed = lease.claim(job(kind="test.broken").pk)
        assert claimed is not None
        assert lease.fail(claimed.fence, error="broken")
    finally:
        del _handlers["test.broken"]
    claimed.job.refresh_from_db()
    assert claimed.job.state == JobState.FAILED


def test_the_silence_doubles_up_to_a_limit(settings: Any) -> None:
    settings.JOB_GRACE_S = 5
    assert [silence_s(n) for n in range(5)] == [5, 10, 20, 30, 30]
    assert silence_s(10_000) == 30


def test_a_dead_process_holds_no_lease_and_a_living_one_keeps_it() -> None:
    dead, living = lease.claim(job().pk), lease.claim(job().pk)
    assert dead is not None
    assert living is not None
    gone = subprocess.Popen(["true"])
    gone.wait()
    Job.objects.filter(pk=dead.job.pk).update(worker=f"{socket.gethostname()}:{gone.pid}")
    assert end_leases_of_dead_workers() == 1
    assert lease.claim(dead.job.pk) is not None
    assert lease.claim(living.job.pk) is None
    assert end_leases_of_dead_workers() == 0
