"""A client that never ends its request head is told so, and takes no memory."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from orchestrator.request_heads import MOST_BYTES
from tests.platform.test_web_processes import Processes
from tests.waiting import PATIENCE_S

ENOUGH = 64 * MOST_BYTES


@pytest.fixture(scope="module")
def server() -> Iterator[Processes]:
    processes = Processes()
    processes.start()
    yield processes
    processes.stop()


def answer_to(server: Processes, begin: bytes, more: Callable[[int], bytes]) -> tuple[bytes, int]:
    """What came back, and after how many bytes the server took no more."""
    sent = 0
    with closing(socket.create_connection(("127.0.0.1", server.shared.port), PATIENCE_S)) as client:
        client.sendall(begin)
        try:
            while sent < ENOUGH:
                piece = more(sent)
                client.sendall(piece)
                sent += len(piece)
            client.sendall(b"\r\n\r\n")
        except OSError:
            pass  # closed by the server, as it should
        try:
            return client.recv(1_000), sent
        except ConnectionResetError:
            return b"", sent  # what it said was lost with what it had not read


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET / HTTP/1.1\r\nHost: a\r\n", lambda n: b"X-%d: %s\r\n" % (n, b"a" * 1_000)),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: ", lambda _: b"a" * 1_000),
        (b"GET /", lambda _: b"a" * 1_000),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
            lambda n: b"X-%d: %s\r\n" % (n, b"a" * 1_000),
        ),
    ],
    ids=["headers", "one header", "address", "trailers"],
)
def test_what_does_not_end_is_ended(
    server: Processes, begin: bytes, more: Callable[[int], bytes]
) -> None:
    answer, sent = answer_to(server, begin, more)
    assert sent < ENOUGH
    assert not answer or b" 400 " in answer or b" 200 " in answer


def test_long_bodies_and_many_requests_on_one_connection_are_none_of_its_business(
    server: Processes,
) -> None:
    address = ("127.0.0.1", server.shared.port)
    with closing(http.client.HTTPConnection(*address, timeout=PATIENCE_S)) as client:
        for _ in range(4):
            client.request("POST", "/", b"a" * (4 * MOST_BYTES), {"X": "b" * (MOST_BYTES // 2)})
            answer = client.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)
