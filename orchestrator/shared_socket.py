"""A listening socket that several web processes share, and a table of their connections.

Connections that stay open would fall unevenly otherwise: eight clients and two processes gave five
and three, or seven and one, and one process waited for work that the other could not finish.

The table says how many each has. It is a piece of memory without a name, made along with the socket
by whoever keeps both, and inherited like it. Whoever takes part holds a lock on one row of it. The
kernel lets go of that lock in the moment in which the process dies, however it dies: nobody waits
for the dead, and there is no clock to trust. Counts are written without locks: a row has one
writer, and eight bytes on their own boundary are read whole.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import sys
from types import TracebackType

BACKLOG = 2_048
"""Connections that the kernel keeps for whoever is free next."""
_ROWS = 64
"""Processes that can take part; one more accepts whatever it can get."""
_ROW_BYTES = 8


class SharedSocket:
    """Open and inheritable, as long as it is not closed. OSError if the port is in use."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        self._table = os.memfd_create("web-connections")
        os.truncate(self._table, _ROWS * _ROW_BYTES)
        self.port: int = self._listener.getsockname()[1]
        self.fds = (self._listener.fileno(), self._table)
        """Of a process that runs `command`, which inherits both under these numbers."""

    def command(self, application: str = "orchestrator.asgi:application") -> list[str]:
        shared = [str(fd) for fd in self.fds]
        return [sys.executable, "-m", "orchestrator.web_process", application, "--fds", *shared]

    def close(self) -> None:
        self._listener.close()
        os.close(self._table)

    def __enter__(self) -> SharedSocket:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Row:
    """The row of this process in the table, from `Row(fd)` until `leave` or its death.

    Rows hold the number of connections plus one: those that never had an owner hold zero.
    """

    def __init__(self, table_fd: int) -> None:
        self._fd = table_fd
        self._counts = memoryview(mmap.mmap(table_fd, _ROWS * _ROW_BYTES)).cast("q")
        self._mine = next((row for row in range(_ROWS) if self._lock(row, fcntl.LOCK_EX)), None)
        self.write(0)

    def write(self, n_connections: int) -> None:
        if self._mine is not None:
            self._counts[self._mine] = n_connections + 1

    def leave(self) -> None:
        """From now on nobody waits for this process; what it still writes is nowhere."""
        if self._mine is not None:
            self._counts[self._mine] = 0
            self._unlock(self._mine)
            self._mine = None

    def below(self) -> dict[int, int]:
        """Rows of living processes with fewer connections than this one, and what they hold."""
        if self._mine is None:
            return {}
        mine = self._counts[self._mine]
        return {
            row: count
            for row, count in enumerate(self._counts)
            if 0 < count < mine and row != self._mine and self._is_alive(row)
        }

    def _is_alive(self, row: int) -> bool:
        # Shared, so that two who look at once do not take each other for the owner.
        if not self._lock(row, fcntl.LOCK_SH):
            return True
        self._counts[row] = 0  # before the lock is gone: a new owner would be written over
        self._unlock(row)
        return False

    def _lock(self, row: int, kind: int) -> bool:
        try:
            fcntl.lockf(self._fd, kind | fcntl.LOCK_NB, _ROW_BYTES, row * _ROW_BYTES)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(self, row: int) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_UN, _ROW_BYTES, row * _ROW_BYTES)
