"""Web processes that share a socket: one dies and the others answer, all die and clients wait."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest
from django.conf import settings

from orchestrator import web_process
from tests.waiting import PATIENCE_S, wait_until


class Processes:
    def __init__(self) -> None:
        self.listener = web_process.listener("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/"
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self) -> int:
        fd = self.listener.fileno()
        process = subprocess.Popen(
            web_process.command(fd, "tests.doubles.number_app:application"),
            cwd=settings.BASE_DIR,
            pass_fds=(fd,),
            stderr=subprocess.DEVNULL,
        )
        self.running[process.pid] = process
        return process.pid

    def kill(self, pid: int) -> None:
        process = self.running.pop(pid)
        process.kill()
        process.wait()

    def who(self) -> int:
        """Who answers a new connection."""
        return int(httpx.get(self.url, timeout=PATIENCE_S).text)


@pytest.fixture
def processes() -> Iterator[Processes]:
    with ExitStack() as stack:
        processes = Processes()
        stack.callback(processes.listener.close)
        yield processes
        for pid in list(processes.running):
            processes.kill(pid)


def test_each_answers_and_one_alone_goes_on(processes: Processes) -> None:
    first, second = processes.start(), processes.start()
    seen: set[int] = set()

    def both() -> bool:
        """Connections that stay open go to whichever is free."""
        with ExitStack() as stack:
            for _ in range(4):
                client = stack.enter_context(httpx.Client(timeout=PATIENCE_S))
                seen.add(int(client.get(processes.url).text))
        return seen == {first, second}

    wait_until(both, limit_s=PATIENCE_S, what="answers of both")
    processes.kill(first)
    assert {processes.who() for _ in range(4)} == {second}


def test_a_client_waits_while_there_is_none(processes: Processes) -> None:
    processes.kill(processes.start())
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(processes.who()))
    asking.start()
    pid = processes.start()
    asking.join(PATIENCE_S)
    assert answers == [pid]
