"""Our servers for OpenEnv's own clients: `GenericEnvClient(provider=ClientProvider(server))`.

Servers have the shape of OpenEnv's `ContainerProvider` already. What its clients lack is the UNIX
socket that a server in the sandbox listens on: this one opens a port on 127.0.0.1 and passes bytes
on. Any program of this machine may connect there while it is open, so it is for experiments and
tests; rollouts use the socket itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from orchestrator.environments.connection import Address
from orchestrator.environments.servers.spec import START_TIMEOUT_S, Server

_CHUNK = 65536
T = TypeVar("T")


class ClientProvider:
    """A server at an http address. Methods block and may be called inside a running loop."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._relay: _Relay | None = None

    def start_container(
        self,
        image: str | None = None,
        port: int | None = None,
        env_vars: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> str:
        """Start the server; its http address. `port` is where to listen, else a free one is."""
        base_url = self._server.start_container(image, None, env_vars, **kwargs)
        socket_path = Address(base_url).socket_path
        if socket_path is None:
            return base_url
        if self._relay is None:
            self._relay = _Relay(socket_path, port or 0)
        return f"http://127.0.0.1:{self._relay.port}"

    def wait_for_ready(self, base_url: str, timeout_s: float = START_TIMEOUT_S) -> None:
        # In a thread: openenv's clients call this inside their event loop.
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(self._server.wait_for_ready, self._server.base_url, timeout_s).result()

    def stop_container(self) -> None:
        """Safe to call twice."""
        relay, self._relay = self._relay, None
        if relay is not None:
            relay.close()
        self._server.stop_container()

    def close(self) -> None:
        self.stop_container()
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class _Relay:
    """Passes bytes between a port of this machine and a UNIX socket, in a thread of its own."""

    def __init__(self, socket_path: str, port: int) -> None:
        self._path = socket_path
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()
        self._listener = self._do(asyncio.start_server(self._accept, "127.0.0.1", port))
        self.port: int = self._listener.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._listener.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.wait([*self._tasks, asyncio.create_task(asyncio.sleep(0))])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._pass_on(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            try:
                inner_reader, inner_writer = await asyncio.open_unix_connection(self._path)
            except OSError:
                return
            with contextlib.closing(inner_writer):
                ways = [
                    self._loop.create_task(_copy(reader, inner_writer)),
                    self._loop.create_task(_copy(inner_reader, writer)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
