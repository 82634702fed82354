"""The supervised tree: it starts, repairs itself, ends whole, and is alone on its folder."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import httpx
import psutil
import pytest
from django.conf import settings

from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.services import enqueue
from tests.jobs.workers import assert_whole, make_stream
from tests.live import LiveStack, MakeStack
from tests.waiting import PATIENCE_S, wait_until


def test_it_stays_small_repairs_itself_and_is_alone(make_stack: MakeStack) -> None:
    """How fast it starts is a figure of `make bench NAME=startup`: here other tests may run too."""
    stack = make_stack()
    stack.start()
    wait_until(lambda: "ready: http://127.0.0.1" in stack.output, limit_s=60, what="the address")

    children = stack.children()
    assert set(children) == {"web", "worker", "gpu"}
    httpx.get(f"{stack.url}/accounts/login/")
    assert children["web"].memory_info().rss < 250e6

    second = subprocess.run(
        [sys.executable, "manage.py", "up", "--port", str(stack.port)],
        cwd=settings.BASE_DIR,
        env=stack.full_environ(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S * 2,
    )
    assert second.returncode == 1
    assert f"already runs on {stack.data}" in second.stderr
    assert "Traceback" not in second.stderr
    assert stack.answers()

    old = children["web"].pid
    stack.kill_child("web")
    wait_until(
        lambda: _new_child(stack, "web", old) and _up(stack.url),
        limit_s=90,
        what="the pages to come back",
    )
    assert "web ended (killed by SIGKILL)" in stack.output

    tree = list(stack.children().values())
    stack.kill()
    _gone, alive = psutil.wait_procs(tree, timeout=60)
    assert not alive
    stack.start()
    stack.stop()
    assert "stopped" in stack.output


def test_a_port_in_use_is_named(make_stack: MakeStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = make_stack(environ={"SWITCHBACK_PORT_WAIT_S": "0.2"})
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", stack.port))
        holder.listen()
        assert stack.launch().wait(timeout=60) == 1
    assert f"Port {stack.port} is in use" in stack.output
    assert "--port" in stack.output
    assert "Traceback" not in stack.output


@pytest.mark.slow
def test_a_killed_supervisors_busy_worker_ends_and_the_job_goes_on(  # R9
    make_stack: MakeStack,
) -> None:
    stack = make_stack()
    stack.start()
    stream = make_stream()
    job = enqueue(kind="fault.count", spec={"stream_id": stream.pk, "n": 200, "pause_s": 0.02})
    # The message of this process goes to another broker: the sweep of the tree announces it.
    _wait_for_seq(stream, 10, limit_s=60)
    tree = list(stack.children().values())
    stack.kill()
    _gone, alive = psutil.wait_procs(tree, timeout=60)
    assert not alive
    stack.start()
    _wait_for_end(job, limit_s=90)
    assert job.attempt == 2
    assert_whole(stream, 200)


@pytest.mark.slow
def test_stopping_gives_running_jobs_back(make_stack: MakeStack) -> None:  # R10
    stack = make_stack()
    stack.start()
    stream = make_stream()
    job = enqueue(kind="fault.count", spec={"stream_id": stream.pk, "n": 300, "pause_s": 0.02})
    _wait_for_seq(stream, 10, limit_s=60)
    assert stack.process is not None
    stack.process.send_signal(signal.SIGTERM)
    stack.process.wait(timeout=60)
    job.refresh_from_db()
    assert job.state == JobState.QUEUED
    stack.start()
    _wait_for_end(job, limit_s=90)
    assert_whole(stream, 300)


def _wait_for_seq(stream, seq: int, *, limit_s: float) -> None:  # type: ignore[no-untyped-def] # a Stream
    def reached() -> bool:
        stream.refresh_from_db()
        return bool(stream.last_seq >= seq)

    wait_until(reached, limit_s=limit_s, what=f"event {seq}")


def _wait_for_end(job: Job, *, limit_s: float) -> None:
    def ended() -> bool:
        job.refresh_from_db()
        return job.is_ended

    wait_until(ended, limit_s=limit_s, what="the job to end")
    assert job.state == JobState.DONE


def _up(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=1).status_code == 200
    except httpx.HTTPError:
        return False


def _new_child(stack: LiveStack, name: str, old_pid: int) -> bool:
    """Looks once: between two looks the child may be gone again."""
    child = stack.children().get(name)
    return child is not None and child.pid != old_pid
