"""A web process: uvicorn on a listener that is open already, shared by several, or on a port.

    python -m orchestrator.web_process orchestrator.asgi:application --fd 5
    python -m orchestrator.web_process orchestrator.asgi:application --host 0.0.0.0 --port 8000

On a port it is one of several behind a proxy: told to stop, it first lets the proxy notice for
`--drain-s` (`orchestrator.draining`).

Whoever starts the processes opens the socket and keeps it, so that connections wait while one of
them starts again. A process takes one connection at a time: the next goes to whichever is free
first, and a burst of clients is not one process's alone.
"""

from __future__ import annotations

import argparse
import socket
import sys
from types import FrameType

import uvicorn
from uvicorn.importer import import_from_string

from orchestrator.draining import Drain, EndConnections

BACKLOG = 2_048
"""Connections that the kernel keeps for whoever is free next."""


class _Server(uvicorn.Server):
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

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(BACKLOG)  # uvicorn has set it to `backlog`, which is also asyncio's


def listener(host: str, port: int) -> socket.socket:
    """Open and inheritable. OSError if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.create_server((host, port), family=family, backlog=BACKLOG)
    opened.set_inheritable(True)
    return opened


def command(fd: int, application: str = "orchestrator.asgi:application") -> list[str]:
    return [sys.executable, "-m", "orchestrator.web_process", application, "--fd", str(fd)]


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m orchestrator.web_process")
    parser.add_argument("application")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--fd", type=int)
    where.add_argument("--port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--drain-s", type=float, default=5.0, help="with --port")
    asked = parser.parse_args(words)
    is_shared = asked.fd is not None
    drain = Drain(0.0 if is_shared else asked.drain_s)
    config = uvicorn.Config(
        EndConnections(import_from_string(asked.application)),
        lifespan="off",
        access_log=False,
        # Open feeds would hold a stopping server until their browsers go away.
        timeout_graceful_shutdown=2,
        ws_max_size=65_536,
        backlog=1 if is_shared else BACKLOG,
    )
    if is_shared:
        opened = socket.socket(fileno=asked.fd)
    else:
        opened = listener(asked.host, asked.port)
    with opened:
        _Server(config, drain).run(sockets=[opened])


if __name__ == "__main__":
    main(sys.argv[1:])
