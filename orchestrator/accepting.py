"""Accepts connections from a socket that other processes accept from too.

One at a time, and not while another process has fewer: that one gets `patience_s` to take it. A
process that is stopped or too busy to do so delays one connection by that much, and then none until
it has shown that it lives: its own number of connections has changed.
asyncio's own loop takes whatever it can get in one go, and has no place for such a question.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import structlog

from orchestrator.shared_socket import Row

PATIENCE_S = 0.02
_LOOK_AGAIN_S = 0.005
OUT_OF_S = 1.0
_OUT_OF = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_BROKEN = {errno.EBADF, errno.EINVAL, errno.ENOTSOCK, errno.EOPNOTSUPP, errno.EFAULT}
"""The socket listens no more, and no waiting mends it."""
log = structlog.get_logger(__name__)


class CountedConnections(set[Any]):
    """uvicorn's set of open connections, which keeps the row in step.

    A connection counts from the moment in which it is accepted: its first answer must not be out
    before the others know of it.
    """

    def __init__(self, row: Row) -> None:
        super().__init__()
        self._row = row
        self._n_coming = 0

    def add(self, connection: Any) -> None:
        super().add(connection)
        self._write()

    def discard(self, connection: Any) -> None:
        super().discard(connection)
        self._write()

    def remove(self, connection: Any) -> None:
        super().remove(connection)
        self._write()

    def comes(self, n_coming: int) -> None:
        self._n_coming = n_coming
        self._write()

    def _write(self) -> None:
        self._row.write(len(self) + self._n_coming)


class Accepting:
    """From `begin` until `end`, inside an event loop."""

    def __init__(
        self,
        listener: socket.socket,
        row: Row,
        connections: CountedConnections,
        protocol: Callable[[], asyncio.Protocol],
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._listener, self._row, self._connections = listener, row, connections
        self._protocol, self._patience_s = protocol, patience_s
        self._woken = asyncio.Event()
        self._is_ending = False
        self._is_out = False
        self._waited_for: dict[int, int] = {}
        """Who let one pass by, and with how many connections."""
        self._task: asyncio.Task[None] | None = None

    def begin(self, on_end: Callable[[], None]) -> None:
        """`on_end` is called too if a fault that nobody foresaw ends it."""
        self._listener.setblocking(False)
        self._task = asyncio.create_task(self._accept(), name="accepting")
        self._task.add_done_callback(lambda _: on_end())

    async def end(self) -> None:
        """Accepts no more; what is accepted by now has its protocol."""
        self._is_ending = True
        self._row.leave()
        self._woken.set()
        if self._task is not None:
            await self._task

    async def _accept(self) -> None:
        while not self._is_ending:
            await self._something_to_take()
            if await self._is_mine():
                await self._take()

    async def _something_to_take(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener, self._woken.set)
        try:
            await self._wait(None)
        finally:
            loop.remove_reader(self._listener)

    async def _is_mine(self) -> bool:
        """False once another has taken it."""
        deadline_s = asyncio.get_running_loop().time() + self._patience_s
        while below := self._awaited():
            left_s = deadline_s - asyncio.get_running_loop().time()
            if left_s <= 0:
                self._waited_for.update(below)
                break
            await self._wait(min(left_s, _LOOK_AGAIN_S))
            if not _is_readable(self._listener):
                return False
        return not self._is_ending

    def _awaited(self) -> dict[int, int]:
        below = self._row.below()
        return {row: n for row, n in below.items() if self._waited_for.get(row) != n}

    async def _take(self) -> None:
        try:
            accepted, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # another was faster, or the client has gone
        except OSError as error:
            if error.errno in _BROKEN:
                raise
            if error.errno not in _OUT_OF:
                # Of that connection alone: see accept(2) on errors of the network and of firewalls.
                log.debug("connection_gone", error=str(error))
                return
            if not self._is_out:
                log.warning("no_new_connections", error=str(error))
            self._is_out = True
            await self._wait(OUT_OF_S)
            return
        self._is_out = False
        self._connections.comes(1)
        try:
            accepted.setblocking(False)
            # asyncio does it only where the socket knows its protocol by number.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, accepted)
        except OSError as error:
            log.debug("connection_gone", error=str(error))
            accepted.close()
        finally:
            self._connections.comes(0)

    async def _wait(self, limit_s: float | None) -> None:
        """Until somebody wakes it, or the time is over."""
        self._woken.clear()
        if not self._is_ending:
            with suppress(TimeoutError):
                async with asyncio.timeout(limit_s):
                    await self._woken.wait()


def _is_readable(listener: socket.socket) -> bool:
    poll = select.poll()  # not select(), which knows no file above 1,023
    poll.register(listener, select.POLLIN)
    return bool(poll.poll(0))
