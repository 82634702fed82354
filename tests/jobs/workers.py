"""Real Celery workers (threads, as in the product) on the test database, with short leases."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import connection

from orchestrator.events.models import Event, Stream
from orchestrator.events.services import create_stream
from orchestrator.jobs.models import Job
from orchestrator.jobs.services import sweep
from tests.base import make_project
from tests.waiting import wait_until

LEASE_S, BEAT_S, GRACE_S = 2.0, 0.4, 0.5
_LIMIT_S = 40.0


@dataclass
class Worker:
    process: subprocess.Popen[bytes]
    log: Path

    def send(self, signum: int) -> None:
        os.killpg(self.process.pid, signum)

    def kill(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        if self.process.poll() is None:
            self.send(signal.SIGCONT)
            self.kill()


class Workers:
    """Starts workers and ends all of them with the test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[Worker] = []

    def start(self, *, slots: int = 4) -> Worker:
        log = self._folder / f"worker{len(self.started)}.log"
        command = [sys.executable, "-m", "celery", "-A", "orchestrator.celery", "worker"]
        command += ["-P", "threads", "-c", str(slots), "-Q", "default,rollouts", "-l", "INFO"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        environ = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "tests.settings",
            "SWITCHBACK_TEST_DATABASE": str(connection.settings_dict["NAME"]),
            "SWITCHBACK_LOG_LEVEL": "INFO",
            "SWITCHBACK_JOB_LEASE_S": str(LEASE_S),
            "SWITCHBACK_JOB_BEAT_S": str(BEAT_S),
            "SWITCHBACK_JOB_GRACE_S": str(GRACE_S),
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                cwd=settings.BASE_DIR,
                env=environ,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        worker = Worker(process=process, log=log)
        self.started.append(worker)
        return worker

    def end(self) -> None:
        for worker in self.started:
            worker.end()


@contextmanager
def workers_in(folder: Path) -> Iterator[Workers]:
    workers = Workers(folder)
    try:
        yield workers
    finally:
        workers.end()


def make_stream() -> Stream:
    return create_stream(project=make_project(), kind="run")


def wait_for_state(job: Job, *states: str, limit_s: float = _LIMIT_S) -> Job:
    """Sweeps as the supervisor does until the job is in one of `states`."""

    def reached() -> bool:
        sweep()
        job.refresh_from_db()
        return job.state in states

    wait_until(reached, limit_s=limit_s, what=f"{job.kind} to be {' or '.join(states)}")
    return job


def wait_for_events(stream: Stream, count: int, *, limit_s: float = _LIMIT_S) -> None:
    def reached() -> bool:
        sweep()
        stream.refresh_from_db()
        return stream.last_seq >= count

    wait_until(reached, limit_s=limit_s, what=f"event {count} (log at {stream.last_seq})")


def assert_whole(stream: Stream, count: int) -> None:
    """Exactly 1..count, each tick once, and no tick of an older attempt after a newer one's."""
    events = list(Event.objects.filter(stream=stream).order_by("seq"))
    assert [event.seq for event in events] == list(range(1, count + 1))
    assert [event.payload["i"] for event in events] == list(range(1, count + 1))
    attempts = [event.payload["attempt"] for event in events]
    assert attempts == sorted(attempts)
    stream.refresh_from_db()
    assert stream.last_seq == count
