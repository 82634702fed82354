"""The egress proxy: CONNECT to allowed names, each decision written down.

It runs outside the sandbox, in a thread with a loop of its own, and serves listening sockets that
stand inside (`doorway`). Names are resolved here and the connection goes to the address that was
judged, so that a name cannot change between the judgement and the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from orchestrator.environments.sandbox.policy import Decision, Policy, is_public

T = TypeVar("T")
STOP_S = 5.0
CHUNK_BYTES = 65536


@dataclass(frozen=True)
class ProxyLimits:
    header_bytes: int = 8192
    header_s: float = 5.0
    connect_s: float = 10.0
    idle_s: float = 120.0
    """Without a byte in either direction."""
    tunnel_bytes: int = 256 * 2**20
    """Of one connection, both directions together."""
    connections: int = 64
    """At a time; the next ones wait."""
    decisions: int = 10_000
    """Written down; after that everything is refused."""


Resolve = Callable[[str, int], Awaitable[list[str]]]


async def resolve_here(host: str, port: int) -> list[str]:
    """The addresses of a name, by this machine's resolver. `OSError` if it has none."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class EgressProxy:
    """Serves until `close`. Thread-safe."""

    def __init__(
        self,
        policy: Policy,
        decisions: Path | None = None,
        *,
        limits: ProxyLimits | None = None,
        resolve: Resolve = resolve_here,
        is_allowed_address: Callable[[str], bool] = is_public,
        connect_port: int | None = None,
    ) -> None:
        """`decisions`: a file for JSON lines. The last three stand for the internet in tests."""
        self.policy = policy
        self.limits = limits or ProxyLimits()
        self._decisions = decisions
        self._resolve = resolve
        self._is_allowed_address = is_allowed_address
        self._connect_port = connect_port
        self._n_decisions = 0
        self._slots = asyncio.Semaphore(self.limits.connections)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="egress", daemon=True)
        self._thread.start()

    @contextlib.contextmanager
    def serving(self, listener: socket.socket) -> Iterator[None]:
        """Serve what connects to the listener, for the time of the block. Takes it over."""
        connections: set[asyncio.Task[None]] = set()
        server = self._in_loop(self._listen(listener, connections))
        try:
            yield
        finally:
            self._in_loop(_shut(server, connections))

    def close(self) -> None:
        """Stop the thread. Safe to call twice."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(STOP_S)
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _in_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_S)

    async def _listen(
        self, listener: socket.socket, connections: set[asyncio.Task[None]]
    ) -> asyncio.Server:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.ensure_future(self._serve(reader, writer))
            connections.add(task)
            task.add_done_callback(connections.discard)

        listener.setblocking(False)
        limit = self.limits.header_bytes
        return await asyncio.start_server(accept, sock=listener, limit=limit)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._slots:
                await self._answer(reader, writer)
        except OSError:
            pass  # The other side went away: nothing to tell and nobody to tell it to.
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, fault = await self._request(reader)
        decision = (
            Decision("", 0, "", "deny", fault) if fault else self.policy.decide(method, target)
        )
        addresses: list[str] = []
        if decision.action == "allow":
            decision, addresses = await self._look_up(decision)
        if not self._write_down(decision):
            decision = replace(decision, action="deny", reason="too many requests in this server")
        if decision.action == "deny":
            await _refuse(writer, 403, decision.reason)
            return
        try:
            far_reader, far_writer = await self._connect(decision, addresses)
        except OSError as exc:
            reason = str(exc) or "no answer in time"
            await _refuse(writer, 502, f"{decision.host} was not reached: {reason}")
            return
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await writer.drain()
            reason = await self._copy_both(reader, writer, far_reader, far_writer)
            if reason:
                self._write_down(replace(decision, action="deny", reason=reason))
        finally:
            far_writer.close()

    async def _request(self, reader: asyncio.StreamReader) -> tuple[str, str, str]:
        """Method, target, and what is wrong with the request."""
        try:
            async with asyncio.timeout(self.limits.header_s):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            return "", "", f"the request's head is above {self.limits.header_bytes} bytes"
        except asyncio.IncompleteReadError:
            return "", "", "the request is not complete"
        except TimeoutError:
            return "", "", f"no request within {self.limits.header_s:g} s"
        parts = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return "", "", "not an HTTP request"
        return parts[0], parts[1], ""

    async def _look_up(self, decision: Decision) -> tuple[Decision, list[str]]:
        try:
            async with asyncio.timeout(self.limits.connect_s):
                addresses = await self._resolve(decision.host, decision.port)
        except (OSError, UnicodeError):
            return replace(decision, action="deny", reason="the name does not resolve"), []
        # All of them: a name with one address inside is not to be trusted with the others.
        for address in addresses:
            if not self._is_allowed_address(address):
                reason = f"resolves to {address}, which is not a public address"
                return replace(decision, action="deny", reason=reason), []
        return decision, addresses

    async def _connect(
        self, decision: Decision, addresses: list[str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """`OSError` (`TimeoutError` is one) if none of the addresses answers."""
        last: OSError = OSError("no address")
        async with asyncio.timeout(self.limits.connect_s):
            for address in addresses:
                try:
                    return await asyncio.open_connection(
                        address, self._connect_port or decision.port
                    )
                except OSError as exc:
                    last = exc
        raise last

    async def _copy_both(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> str:
        """Until both sides have ended; the limit that cut it, in words, or nothing."""
        left = self.limits.tunnel_bytes
        last_at = time.monotonic()

        async def copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            nonlocal left, last_at
            while chunk := await source.read(CHUNK_BYTES):
                left -= len(chunk)
                last_at = time.monotonic()
                if left < 0:
                    raise _CutError(f"cut after {self.limits.tunnel_bytes} bytes")
                sink.write(chunk)
                await sink.drain()
            sink.write_eof()

        async def watch() -> None:
            while (rest_s := last_at + self.limits.idle_s - time.monotonic()) > 0:
                await asyncio.sleep(rest_s)
            raise _CutError(f"cut after {self.limits.idle_s:g} s without a byte")

        cut = ""
        try:
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch())
                copies = [
                    group.create_task(copy(reader, far_writer)),
                    group.create_task(copy(far_reader, writer)),
                ]
                await asyncio.wait(copies)
                watching.cancel()
        except* _CutError as found:
            cut = str(found.exceptions[0])
        except* OSError:
            pass  # One side is gone; the other is closed by the caller.
        return cut

    def _write_down(self, decision: Decision) -> bool:
        """False once the file is full: what is not written down is not allowed."""
        self._n_decisions += 1
        if self._n_decisions > self.limits.decisions:
            return False
        if self._decisions is not None:
            line = json.dumps({"t": time.time(), **asdict(decision)}, ensure_ascii=False)
            with self._decisions.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        return True


class _CutError(Exception):
    """A tunnel met a limit."""


async def _refuse(writer: asyncio.StreamWriter, status: int, reason: str) -> None:
    body = f"egress proxy: {reason}\n".encode(errors="replace")
    name = {403: "Forbidden", 502: "Bad Gateway"}[status]
    writer.write(
        f"HTTP/1.1 {status} {name}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        + body
    )
    await writer.drain()


async def _shut(server: asyncio.Server, connections: set[asyncio.Task[None]]) -> None:
    server.close()
    for task in connections:
        task.cancel()
    if connections:
        await asyncio.wait(connections)
