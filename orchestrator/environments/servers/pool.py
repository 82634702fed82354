"""The live servers of this process.

One for each specification; a dead one is started again before the next episode. Slots are counted
here: no route of OpenEnv tells how many are free.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from orchestrator.environments.servers.spec import Server, ServerSpec


class ServerPool:
    """The servers of this process. Thread-safe; closed at the process's end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()  # protects the maps; a server's own lock its start
        self._servers: dict[str, Server] = {}
        self._starting: dict[str, threading.Lock] = {}
        self._leases: dict[str, int] = {}
        atexit.register(self.close)

    @contextmanager
    def server(self, spec: ServerSpec) -> Iterator[Server]:
        """A ready server for the time of the block; started, or started again, if need be.

        `ServerStartError` if it does not become ready.
        """
        key = spec.digest
        with self._lock:
            starting = self._starting.setdefault(key, threading.Lock())
            self._leases[key] = self._leases.get(key, 0) + 1
        try:
            with starting:
                server = self._ready_server(spec, key)
            yield server
        finally:
            with self._lock:
                self._leases[key] -= 1

    @asynccontextmanager
    async def ready_server(self, spec: ServerSpec) -> AsyncIterator[Server]:
        """`server` for asynchronous code: the start happens in a thread."""
        with contextlib.ExitStack() as stack:
            yield await asyncio.to_thread(stack.enter_context, self.server(spec))

    def leases(self, spec: ServerSpec) -> int:
        """How many blocks use the server at the moment."""
        with self._lock:
            return self._leases.get(spec.digest, 0)

    def close_idle(self) -> None:
        """Stop the servers that nobody uses."""
        with self._lock:
            idle = [key for key in self._servers if not self._leases.get(key)]
            servers = [self._servers.pop(key) for key in idle]
        for server in servers:
            server.close()

    def close(self) -> None:
        """Stop all servers. Safe to call twice."""
        with self._lock:
            servers = list(self._servers.values())
            self._servers.clear()
        for server in servers:
            server.close()

    def _ready_server(self, spec: ServerSpec, key: str) -> Server:
        with self._lock:
            server = self._servers.get(key)
        if server is not None and server.is_alive:
            return server
        if server is None:
            server = spec.make(self.root / spec.name / key)
        if not server.is_alive:
            server.wait_for_ready(server.start_container())
        with self._lock:
            self._servers[key] = server
        return server
