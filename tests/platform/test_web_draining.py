"""A web process on a port that is told to stop lets its proxy notice before it closes."""

from __future__ import annotations

import http.client
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from tests.platform.rolling import free_port
from tests.waiting import wait_until


def ask(port: int, path: str) -> tuple[int, str, str]:
    """Status, text and what becomes of the connection; status 0 where nobody listens."""
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        client.request("GET", path)
        answer = client.getresponse()
        return answer.status, answer.read().decode(), answer.getheader("Connection") or ""
    except OSError:
        return 0, "", ""
    finally:
        client.close()


@contextmanager
def process(drain_s: float) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    command = [sys.executable, "-m", "orchestrator.web_process", "tests.platform.plain_app:app"]
    command += ["--port", str(port), "--drain-s", str(drain_s)]
    with subprocess.Popen(command, cwd=settings.BASE_DIR) as started:
        try:
            wait_until(lambda: ask(port, "/")[0] == 200, limit_s=60, what="the process to answer")
            yield started, port
        finally:
            started.kill()


def test_it_answers_on_and_says_that_it_stops() -> None:
    with process(600) as (web, port):
        assert ask(port, "/readyz") == (200, "/readyz", "")
        web.send_signal(signal.SIGTERM)
        wait_until(lambda: ask(port, "/readyz")[0] == 503, limit_s=60, what="it to say so")
        assert ask(port, "/readyz") == (503, '{"status": "stopping"}', "close")
        assert ask(port, "/page") == (200, "/page", "close")
        web.send_signal(signal.SIGTERM)  # somebody has no patience
        web.wait(60)
        assert ask(port, "/page")[0] == 0


def test_it_ends_by_itself() -> None:
    with process(0.2) as (web, _):
        web.send_signal(signal.SIGTERM)
        web.wait(60)
