"""Commands and servers that may reach some names: through the proxy, and no other way."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.environments.sandbox import (
    Limits,
    Sandbox,
    detect,
    fresh_folder,
    private_root,
    remove_folder,
)
from orchestrator.environments.sandbox.policy import Policy
from orchestrator.environments.sandbox.proxy import EgressProxy, ProxyLimits
from tests.environments.conftest import needs_bubblewrap

ISOLATION = detect(environ={})
NAMES = {
    "api.example.org": ["127.0.0.1"],
    "inside.example.org": ["10.0.0.1"],
    "mixed.example.org": ["127.0.0.1", "10.0.0.1"],
    "dead.example.org": ["127.0.0.2"],
}


async def _resolve(host: str, port: int) -> list[str]:
    if host not in NAMES:
        raise OSError("unknown")
    return NAMES[host]


@contextmanager
def far_server(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server on the internet that tests have: port on the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(2)


def _echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


@contextmanager
def proxy_on_loopback(
    tmp_path: Path, port: int, limits: ProxyLimits | None = None
) -> Iterator[tuple[tuple[str, int], Path]]:
    """Its address, and the file of its decisions."""
    log = tmp_path / "decisions.jsonl"
    allowed = ("*.example.org",)
    with (
        EgressProxy(
            Policy(allowed),
            log,
            limits=limits,
            resolve=_resolve,
            is_allowed_address=lambda address: address.startswith("127."),
            connect_port=port,
        ) as proxy,
        closing(socket.create_server(("127.0.0.1", 0))) as listener,
    ):
        address = listener.getsockname()
        with proxy.serving(listener):
            yield address, log


def ask(address: tuple[str, int], request: bytes) -> tuple[socket.socket, bytes]:
    connection = socket.create_connection(address, timeout=5)
    connection.sendall(request)
    head = b""
    while b"\r\n\r\n" not in head and (data := connection.recv(4096)):
        head += data
    return connection, head


def decisions(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


def connect_to(host: str) -> bytes:
    return f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()


def test_an_allowed_name_is_connected_both_ways_and_written_down(tmp_path: Path) -> None:
    with far_server(_echo) as port, proxy_on_loopback(tmp_path, port) as (address, log):
        connection, head = ask(address, connect_to("API.example.org"))
        with connection:
            assert head.startswith(b"HTTP/1.1 200")
            connection.sendall(b"hello")
            assert connection.recv(100) == b"hello"
        (line,) = decisions(log)
    assert set(line) == {"t", "host", "port", "method", "action", "reason"}
    assert (line["host"], line["port"], line["action"]) == ("api.example.org", 443, "allow")


@pytest.mark.parametrize(
    ("request_bytes", "reason"),
    [
        (connect_to("other.net"), "not on the allow-list"),
        (connect_to("inside.example.org"), "10.0.0.1, which is not a public address"),
        (connect_to("mixed.example.org"), "not a public address"),
        (connect_to("absent.example.org"), "does not resolve"),
        (connect_to("127.0.0.1"), "an address, not a name"),
        (b"GET http://api.example.org/ HTTP/1.1\r\n\r\n", "only CONNECT"),
        (b"\x16\x03\x01nonsense\r\n\r\n", "not an HTTP request"),
        (b"CONNECT " + b"a" * 9000 + b"\r\n\r\n", "above 8192 bytes"),
    ],
)
def test_all_else_is_refused_and_written_down(
    tmp_path: Path, request_bytes: bytes, reason: str
) -> None:
    with far_server(_echo) as port, proxy_on_loopback(tmp_path, port) as (address, log):
        connection, head = ask(address, request_bytes)
        with connection:
            assert head.startswith(b"HTTP/1.1 403")
        (line,) = decisions(log)
    assert line["action"] == "deny"
    assert reason in line["reason"]


def test_a_name_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with proxy_on_loopback(tmp_path, port) as (address, _):
        connection, head = ask(address, connect_to("dead.example.org"))
        with connection:
            assert head.startswith(b"HTTP/1.1 502")


def test_the_limits_end_what_is_too_slow_or_too_much(tmp_path: Path) -> None:
    limits = ProxyLimits(header_s=0.2, tunnel_bytes=1000, idle_s=0.3, decisions=3)
    with far_server(_echo) as port, proxy_on_loopback(tmp_path, port, limits) as (address, log):
        slow, head = ask(address, b"CONNECT ")
        slow.close()
        assert head.startswith(b"HTTP/1.1 403")
        much, _ = ask(address, connect_to("api.example.org"))
        with much:
            much.sendall(b"x" * 2000)
            received = 0
            while data := much.recv(4096):
                received += len(data)
            assert received <= 1000
        last, head = ask(address, connect_to("api.example.org"))
        last.close()
        assert b"too many requests" in head
        reasons = [line["reason"] for line in decisions(log)]
    assert reasons == ["no request within 0.2 s", "", "cut after 1000 bytes"]


def test_an_idle_tunnel_is_cut(tmp_path: Path) -> None:
    limits = ProxyLimits(idle_s=0.2)
    with far_server(_echo) as port, proxy_on_loopback(tmp_path, port, limits) as (address, log):
        connection, _ = ask(address, connect_to("api.example.org"))
        with connection:
            assert connection.recv(1) == b""
        assert "without a byte" in decisions(log)[-1]["reason"]


@pytest.fixture
def folder() -> Iterator[Path]:
    root = private_root()
    yield fresh_folder(root, {}, ISOLATION)
    remove_folder(root)


CONNECT_IN_BASH = (
    "exec 3<>/dev/tcp/127.0.0.1/3128; "
    "printf 'CONNECT %s:443 HTTP/1.1\\r\\n\\r\\n' {host} >&3; head -n 1 <&3"
)


@needs_bubblewrap
def test_a_command_reaches_allowed_names_through_the_proxy_only(
    tmp_path: Path, folder: Path
) -> None:
    log = tmp_path / "decisions.jsonl"
    with (
        far_server(_echo) as port,
        EgressProxy(
            Policy(("api.example.org",)),
            log,
            resolve=_resolve,
            is_allowed_address=lambda address: True,
            connect_port=port,
        ) as proxy,
    ):
        box = Sandbox(ISOLATION, Limits(), egress=proxy)
        allowed = box.run(CONNECT_IN_BASH.format(host="api.example.org"), folder)
        denied = box.run(CONNECT_IN_BASH.format(host="other.net"), folder)
        direct = box.run(f"echo > /dev/tcp/127.0.0.1/{port}", folder)
        named = box.run("echo $HTTPS_PROXY; getent hosts api.example.org", folder)
        failing = box.run("exit 3", folder)
        late = Sandbox(ISOLATION, Limits(wall_s=0.3), egress=proxy).run("sleep 9", folder)
    assert b"200" in allowed.output
    assert b"403" in denied.output
    assert b"refused" in direct.output
    assert named.output == b"http://127.0.0.1:3128\n" and named.exit_status != 0
    assert failing.exit_status == 3
    assert late.warning == "time limit of 0.3 s"
    assert [line["action"] for line in decisions(log)] == ["allow", "deny"]


@needs_bubblewrap
def test_commands_with_a_proxy_run_side_by_side(folder: Path) -> None:
    with EgressProxy(Policy(("api.example.org",))) as proxy:
        box = Sandbox(ISOLATION, Limits(), egress=proxy)
        found: list[bytes] = []

        def work() -> None:
            found.append(box.run(CONNECT_IN_BASH.format(host="other.net"), folder).output)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [b"403" in output for output in found] == [True] * 4
