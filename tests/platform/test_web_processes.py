"""Web processes share a socket evenly: one dies and the others go on, all die and clients wait."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from django.conf import settings

from orchestrator.accepting import Accepting, CountedConnections
from orchestrator.shared_socket import Row, SharedSocket
from tests.waiting import PATIENCE_S, wait_until


class Processes:
    def __init__(self, loop: str = "auto") -> None:
        self.shared = SharedSocket("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.shared.port}/"
        self.running: dict[int, subprocess.Popen[bytes]] = {}
        # One that has to let another go first does so however slow this machine is, and longer
        # than a client waits.
        patience = ["--patience-s", str(10 * PATIENCE_S)]
        self._words = [*patience, "--loop", loop]

    def start(self) -> int:
        process = subprocess.Popen(
            [*self.shared.command("tests.doubles.number_app:application"), *self._words],
            cwd=settings.BASE_DIR,
            pass_fds=self.shared.fds,
            stderr=subprocess.DEVNULL,
        )
        self.running[process.pid] = process
        return process.pid

    def start_two(self) -> set[int]:
        """Once both take part."""
        started = {self.start(), self.start()}

        def both() -> bool:
            with self.clients(2) as seen:
                return set(seen) == started

        wait_until(both, limit_s=PATIENCE_S, what="answers of both")
        return started

    def kill(self, pid: int) -> None:
        process = self.running.pop(pid)
        process.kill()
        process.wait()

    @contextmanager
    def clients(self, number: int) -> Iterator[list[int]]:
        """Who answers each of them; they come one after the other, and their connections stay."""
        with ExitStack() as stack:
            answers = []
            for _ in range(number):
                client = stack.enter_context(httpx.Client(timeout=PATIENCE_S))
                answer = stack.enter_context(client.stream("GET", f"{self.url}stay"))
                text = answer.iter_text()
                stack.callback(text.close)  # type: ignore[attr-defined]  # or it ends at once
                answers.append(int(next(text)))
            yield answers

    def who(self) -> int:
        """Who answers a new connection."""
        return int(httpx.get(self.url, timeout=PATIENCE_S).text)

    def stop(self) -> None:
        for pid in list(self.running):
            self.kill(pid)
        self.shared.close()


@pytest.fixture(params=["asyncio", "uvloop"])
def processes(request: pytest.FixtureRequest) -> Iterator[Processes]:
    processes = Processes(request.param)
    yield processes
    processes.stop()


def test_connections_that_stay_are_shared_evenly(processes: Processes) -> None:
    started = processes.start_two()
    with processes.clients(8) as answers:
        assert Counter(answers) == dict.fromkeys(started, 4)


def test_one_that_comes_later_catches_up(processes: Processes) -> None:
    first = processes.start()
    with processes.clients(8) as answers:
        assert set(answers) == {first}
        second = processes.start()
        wait_until(lambda: processes.who() == second, limit_s=PATIENCE_S, what="its answer")
        with processes.clients(8) as answers:
            assert set(answers) == {second}


def test_nobody_waits_for_one_that_stops(processes: Processes) -> None:
    first, second = processes.start_two()
    with processes.clients(4):
        processes.running[first].terminate()
        processes.running.pop(first).wait(PATIENCE_S)
        with processes.clients(8) as answers:
            assert set(answers) == {second}


def test_nobody_waits_for_one_that_was_killed(processes: Processes) -> None:
    first, second = processes.start_two()
    with processes.clients(4):
        processes.kill(first)
        with processes.clients(8) as answers:
            assert set(answers) == {second}


def test_accepting_goes_on_once_there_are_files_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two refusals, and then the client that waited meanwhile is served."""
    refusals = [OSError(errno.EMFILE, "Too many open files") for _ in range(2)]

    class Listener(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            if refusals:
                raise refusals.pop()
            return super().accept()

    class Greeting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.WriteTransport)
            transport.write(b"hello")
            transport.close()

    async def serve(listener: socket.socket, row: Row) -> bytes:
        accepting = Accepting(listener, row, CountedConnections(row), Greeting)
        accepting.begin(on_end=lambda: None)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        try:
            return await asyncio.wait_for(reader.read(), PATIENCE_S)
        finally:
            writer.close()
            await accepting.end()

    monkeypatch.setattr("orchestrator.accepting.OUT_OF_S", 0.01)
    with SharedSocket("127.0.0.1", 0) as shared, Listener(fileno=os.dup(shared.fds[0])) as listener:
        assert asyncio.run(serve(listener, Row(shared.fds[1]))) == b"hello"
    assert not refusals


class Fewer(Row):
    """As if another process had fewer connections and never took one."""

    others = {7: 1}

    def below(self) -> dict[int, int]:
        return dict(self.others)


def test_one_that_does_not_come_is_waited_for_once() -> None:
    patience_s, n_clients = 1.0, 120  # half of what they would wait is a minute, below

    class Silent(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    async def served(address: tuple[str, int]) -> None:
        reader, writer = await asyncio.open_connection(*address)
        await reader.read()
        writer.close()

    async def serve(listener: socket.socket, row: Fewer) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        accepting = Accepting(listener, row, CountedConnections(row), Silent, patience_s)
        accepting.begin(on_end=lambda: None)
        started_s = loop.time()
        for _ in range(n_clients):
            await served(listener.getsockname())
        all_s = loop.time() - started_s
        row.others = {7: 2}  # it lives after all
        started_s = loop.time()
        await served(listener.getsockname())
        again_s = loop.time() - started_s
        await accepting.end()
        return all_s, again_s

    with (
        SharedSocket("127.0.0.1", 0) as shared,
        socket.socket(fileno=os.dup(shared.fds[0])) as listener,
    ):
        all_s, again_s = asyncio.run(serve(listener, Fewer(shared.fds[1])))
    assert patience_s <= all_s < n_clients * patience_s / 2
    assert again_s >= patience_s


def test_a_client_waits_while_there_is_none(processes: Processes) -> None:
    processes.kill(processes.start())
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(processes.who()))
    asking.start()
    pid = processes.start()
    asking.join(PATIENCE_S)
    assert answers == [pid]
