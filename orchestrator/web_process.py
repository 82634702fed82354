"""A web process: uvicorn on a socket that it shares with others, or on a port of its own.

    python -m orchestrator.web_process orchestrator.asgi:application --fds 5 6
    python -m orchestrator.web_process orchestrator.asgi:application --host 0.0.0.0 --port 8000

On a port it is one of several behind a proxy: told to stop, it first lets the proxy notice for
`--drain-s` (`orchestrator.draining`).

Whoever starts processes that share keeps the socket open, so that connections wait while one of
them starts again (`orchestrator.shared_socket`). They share the connections evenly
(`orchestrator.accepting`).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import socket
import sys
from types import FrameType

import uvicorn
from uvicorn.importer import import_from_string

from orchestrator.accepting import PATIENCE_S, Accepting, CountedConnections
from orchestrator.draining import Drain, EndConnections
from orchestrator.request_heads import BoundedHeads
from orchestrator.shared_socket import BACKLOG, Row


class _Server(uvicorn.Server):
    """On a port."""

    def __init__(self, config: uvicorn.Config, drain: Drain) -> None:
        super().__init__(config)
        self._drain = drain

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if not self._drain.begins():
            super().handle_exit(sig, frame)

    async def on_tick(self, counter: int) -> bool:
        if self._drain.is_over():
            self.should_exit = True
        return await super().on_tick(counter)


class _SharingServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, row: Row, patience_s: float) -> None:
        super().__init__(config)
        self._row, self._patience_s = row, patience_s
        self._connections = CountedConnections(row)
        self.server_state.connections = self._connections

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])  # uvicorn is to accept nothing itself
        (listener,) = sockets or []
        self._accepting = Accepting(
            listener, self._row, self._connections, self._new_protocol, self._patience_s
        )
        self._accepting.begin(on_end=self._stop)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await self._accepting.end()
        finally:
            await super().shutdown(sockets)

    def _new_protocol(self) -> asyncio.Protocol:
        return self.config.http_protocol_class(  # type: ignore[call-arg]  # as uvicorn calls it
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )

    def _stop(self) -> None:
        """A process that accepts nothing any more is of no use: it ends and is started again."""
        self.should_exit = True


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m orchestrator.web_process")
    parser.add_argument("application")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fds", type=int, nargs=2, metavar=("SOCKET", "TABLE"))
    where.add_argument("--port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--drain-s", type=float, default=5.0, help="with --port")
    parser.add_argument("--patience-s", type=float, default=PATIENCE_S, help="with --fds")
    parser.add_argument("--loop", choices=("auto", "asyncio", "uvloop"), default="auto")
    asked = parser.parse_args(words)
    config = uvicorn.Config(
        EndConnections(import_from_string(asked.application)),
        loop=asked.loop,
        http=BoundedHeads,
        lifespan="off",
        access_log=False,
        # Open feeds would hold a stopping server until their browsers go away.
        timeout_graceful_shutdown=2,
        ws_max_size=65_536,
        backlog=BACKLOG,
    )
    server: uvicorn.Server
    if asked.fds:
        socket_fd, table_fd = asked.fds
        opened = socket.socket(fileno=socket_fd)
        server = _SharingServer(config, Row(table_fd), asked.patience_s)
    else:
        family = socket.AF_INET6 if ":" in asked.host else socket.AF_INET
        opened = socket.create_server((asked.host, asked.port), family=family, backlog=BACKLOG)
        server = _Server(config, Drain(asked.drain_s))
    _spare_the_collector()
    with opened:
        server.run(sockets=[opened])


def _spare_the_collector() -> None:
    """What the program consists of stays, so it is not looked through for garbage again. A request
    makes some thousand objects and leaves a handful that only the collector finds; its body is not
    among them (`orchestrator.serving`).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


if __name__ == "__main__":
    main(sys.argv[1:])
