"""The recovery cases of durable jobs, on real workers: killed, frozen, doubled, cancelled.

After each case the log is exactly 1..n and the final state is right.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from orchestrator.events.models import Stream
from orchestrator.events.services import NewEvent, append
from orchestrator.jobs.announcing import announce, count_messages
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.services import cancel, enqueue, sweep
from tests.jobs.workers import (
    BEAT_S,
    GRACE_S,
    LEASE_S,
    Workers,
    assert_whole,
    make_stream,
    wait_for_events,
    wait_for_state,
    workers_in,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def short_leases(settings: Any) -> None:
    settings.JOB_LEASE_S, settings.JOB_BEAT_S, settings.JOB_GRACE_S = LEASE_S, BEAT_S, GRACE_S


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    with workers_in(tmp_path) as started:
        yield started


def count_job(stream: Stream, n: int, **spec: Any) -> Job:
    return enqueue(kind="fault.count", spec={"stream_id": stream.pk, "n": n, **spec})


def test_a_killed_workers_job_goes_on_without_loss(workers: Workers) -> None:  # R1, R6
    streams = [make_stream() for _ in range(4)]
    jobs = [count_job(stream, 150, pause_s=0.02) for stream in streams]
    first = workers.start()
    for stream in streams:
        wait_for_events(stream, 10)
    first.kill()
    workers.start()
    for job, stream in zip(jobs, streams, strict=True):
        assert wait_for_state(job, JobState.DONE).attempt == 2
        assert_whole(stream, 150)


def test_messages_lost_and_doubled_errors_and_cancellation(workers: Workers) -> None:
    """R3, R5, R12, R14 on one worker, to pay for its start once."""
    workers.start()

    lost, doubled, cancelled = make_stream(), make_stream(), make_stream()
    job = count_job(doubled, 60)
    for _ in range(10):
        announce(job.pk, job.queue)
    assert wait_for_state(job, JobState.DONE).attempt == 1
    assert_whole(doubled, 60)

    unannounced = Job.objects.create(
        kind="fault.count", spec={"stream_id": lost.pk, "n": 20}, lease_until="2000-01-01T00:00Z"
    )
    assert wait_for_state(unannounced, JobState.DONE).attempt == 1
    assert_whole(lost, 20)

    broken = enqueue(kind="fault.raise", spec={})
    assert wait_for_state(broken, JobState.FAILED).error == "ValueError: the handler is broken"
    retried = enqueue(kind="fault.retry", spec={"good_attempt": 3})
    assert wait_for_state(retried, JobState.DONE).attempt == 3
    assert Job.objects.get(pk=broken.pk).attempt == 1

    long = count_job(cancelled, 100_000)
    wait_for_events(cancelled, 5)
    cancel(job=long)
    wait_for_state(long, JobState.CANCELLED, limit_s=BEAT_S + 2)
    cancelled.refresh_from_db()
    assert_whole(cancelled, cancelled.last_seq)


def test_a_job_cancelled_while_queued_never_starts(workers: Workers) -> None:  # R14
    stream = make_stream()
    job = count_job(stream, 5)
    cancel(job=job)
    job.refresh_from_db()
    assert (job.state, job.attempt) == (JobState.CANCELLED, 0)
    sweep()
    assert_whole(stream, 0)


@pytest.mark.slow
def test_a_zombie_changes_nothing(workers: Workers) -> None:  # R4
    stream = make_stream()
    job = count_job(stream, 400, pause_s=0.02)
    frozen = workers.start()
    wait_for_events(stream, 10)
    frozen.send(signal.SIGSTOP)
    workers.start()
    wait_for_events(stream, 60)
    frozen.send(signal.SIGCONT)
    assert wait_for_state(job, JobState.DONE).attempt == 2
    assert_whole(stream, 400)
    wait_until(
        lambda: b"lost its lease" in frozen.log.read_bytes(),
        limit_s=60,
        what="the zombie to see it",
    )


@pytest.mark.slow
def test_a_stopped_worker_gives_its_jobs_back(workers: Workers) -> None:  # R10
    stream = make_stream()
    job = count_job(stream, 200, pause_s=0.02)
    first = workers.start()
    wait_for_events(stream, 10)
    first.process.send_signal(signal.SIGTERM)
    first.process.wait(timeout=10)
    job.refresh_from_db()
    assert (job.state, job.strikes) == (JobState.QUEUED, 0)
    workers.start()
    assert wait_for_state(job, JobState.DONE).attempt == 2
    assert_whole(stream, 200)


@pytest.mark.slow
def test_a_job_that_kills_its_worker_is_given_up(workers: Workers) -> None:  # R13
    job = enqueue(kind="fault.die", spec={}, max_attempts=2)

    def ended() -> bool:
        if not workers.started or workers.started[-1].process.poll() is not None:
            workers.start()
        sweep()
        job.refresh_from_db()
        return job.is_ended

    wait_until(ended, limit_s=40, what="the job to be given up", pause_s=0.2)
    assert (job.state, job.attempt) == (JobState.FAILED, 2)
    assert "max_attempts" in job.error


# Takes the broker's folder away; the recovery itself is the same on the other stack.
if settings.STACK == "embedded":

    @pytest.mark.slow
    def test_a_request_succeeds_while_the_broker_is_down(workers: Workers) -> None:  # R15
        messages = Path(settings.CELERY_BROKER_TRANSPORT_OPTIONS["data_folder_in"])
        aside = messages.with_name("aside")
        messages.rename(aside)
        messages.write_text("in the way")
        stream = make_stream()
        try:
            job = count_job(stream, 20)
            assert sweep() == 0
        finally:
            messages.unlink()
            aside.rename(messages)
        workers.start()
        assert wait_for_state(job, JobState.DONE).attempt == 1
        assert_whole(stream, 20)


@pytest.mark.slow
def test_a_long_queue_does_not_flood_the_broker(workers: Workers) -> None:  # R16
    streams = [make_stream() for _ in range(150)]
    jobs = [count_job(stream, 5, pause_s=0.05) for stream in streams]
    workers.start(slots=2)
    most_messages = 0

    def all_done() -> bool:
        nonlocal most_messages
        sweep()
        most_messages = max(most_messages, count_messages("default"))
        return not Job.objects.exclude(state=JobState.DONE).exists()

    wait_until(all_done, limit_s=90, what="150 jobs to end", pause_s=0.2)
    assert most_messages <= len(jobs) + 5
    assert set(Job.objects.values_list("attempt", flat=True)) == {1}


@pytest.mark.slow
def test_a_saturated_database_costs_no_lease(workers: Workers) -> None:  # R17
    watched, noisy = [make_stream() for _ in range(3)], [make_stream() for _ in range(8)]
    jobs = [count_job(stream, 100, pause_s=0.1) for stream in watched]
    workers.start()
    stop = threading.Event()

    def saturate(stream_id: int) -> None:
        while not stop.is_set():
            append(stream_id=stream_id, items=[NewEvent("noise", {"text": "x" * 400})] * 20)
        connection.close()

    writers = [threading.Thread(target=saturate, args=(stream.pk,)) for stream in noisy]
    for stream in watched:
        wait_for_events(stream, 3)
    for writer in writers:
        writer.start()
    stop.wait(5 * LEASE_S)
    stop.set()
    for writer in writers:
        writer.join()
    for job, stream in zip(jobs, watched, strict=True):
        assert wait_for_state(job, JobState.DONE).attempt <= 2
        assert_whole(stream, 100)


@pytest.mark.slow
def test_a_host_that_slept_longer_than_the_lease_goes_on(workers: Workers) -> None:  # R18
    stream = make_stream()
    job = count_job(stream, 200, pause_s=0.02)
    worker = workers.start()
    wait_for_events(stream, 10)
    worker.send(signal.SIGSTOP)
    wait_until(
        lambda: Job.objects.filter(pk=job.pk, lease_until__lt=_now()).exists(),
        limit_s=LEASE_S + 3,
        what="the lease to end",
    )
    worker.send(signal.SIGCONT)
    assert wait_for_state(job, JobState.DONE).attempt <= 2
    assert_whole(stream, 200)


def _now() -> Any:
    from orchestrator.jobs.clock import instant

    return instant()
