"""The live servers of this process.

For each specification a group of servers, from one up to its `max_servers`; equal specifications
share a group. `server` lends the first one for a block, which takes no slot; `gate` admits
episodes, and has further servers started while somebody waits. Starts happen in threads, one at a
time per group. Dead servers are replaced, drained ones when they are empty, and a group that nobody
has used for a while is stopped.

`max_servers` counts on the machine: beside its first server, a process starts another only while it
holds one of `max_servers` - 1 locks in the specification's folder. The kernel frees a lock with its
process. So a process always has one server, and processes share what is allowed beyond that.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import fcntl
import os
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import structlog

from orchestrator.environments.admission import Gate, Place
from orchestrator.environments.errors import ServerStartError
from orchestrator.environments.servers.spec import Server, ServerSpec

IDLE_S = 300.0
"""A group that nobody has used for this long is stopped."""
DYING_S = 1.0
"""How long a server that lost a connection is watched before it gets another episode."""
MACHINE_FULL_S = 2.0
"""How soon a further server is tried again when other processes have them all."""

log = structlog.get_logger(__name__)


class ServerPool:
    """The servers of this process. Thread-safe; closed at the process's end."""

    def __init__(self, root: Path, *, idle_s: float = IDLE_S) -> None:
        self.root = root
        self.idle_s = idle_s
        self._lock = threading.Lock()  # protects the map
        self._groups: dict[str, _Group] = {}
        self._closing = threading.Event()
        self._reaper: threading.Thread | None = None
        atexit.register(self.close)

    @contextmanager
    def server(self, spec: ServerSpec) -> Iterator[Server]:
        """A ready server for the time of the block; started, or started again, if need be.

        `ServerStartError` if it does not become ready.
        """
        group = self._group(spec)
        with group.used():
            yield group.first_server()

    @asynccontextmanager
    async def ready_server(self, spec: ServerSpec) -> AsyncIterator[Server]:
        """`server` for asynchronous code: the start happens in a thread."""
        with contextlib.ExitStack() as stack:
            yield await asyncio.to_thread(stack.enter_context, self.server(spec))

    def gate(self, spec: ServerSpec) -> Gate:
        """Where episodes on the specification's servers are admitted."""
        return self._group(spec).gate

    def leases(self, spec: ServerSpec) -> int:
        """How many blocks use the server at the moment."""
        return self._group(spec).n_blocks

    def close_idle(self, *, unused_for_s: float = 0.0) -> None:
        """Stop the servers that nobody uses."""
        with self._lock:
            idle = [key for key, g in self._groups.items() if g.idle_for_s() >= unused_for_s]
            groups = [self._groups.pop(key) for key in idle]
        for group in groups:
            group.close()

    def close(self) -> None:
        """Stop all servers. Safe to call twice; a later use starts them again."""
        with self._lock:
            groups = list(self._groups.values())
            self._groups.clear()
            self._closing.set()
            self._reaper = None
        for group in groups:
            group.close()

    def _group(self, spec: ServerSpec) -> _Group:
        key = spec.digest
        with self._lock:
            if key not in self._groups:
                self._groups[key] = _Group(spec, self.root / spec.name)
                self._watch_idle()
            return self._groups[key]

    def _watch_idle(self) -> None:
        if self._reaper is None:
            self._closing = threading.Event()
            self._reaper = threading.Thread(
                target=self._reap, args=(self._closing,), name="server-reaper", daemon=True
            )
            self._reaper.start()

    def _reap(self, closing: threading.Event) -> None:
        while not closing.wait(max(0.05, self.idle_s / 10)):
            self.close_idle(unused_for_s=self.idle_s)


class _Group:
    """The servers of one specification."""

    def __init__(self, spec: ServerSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.n_blocks = 0
        self.gate = Gate(
            spec.max_servers,
            want=self._start_later,
            retire=self._retire_later,
            check=self._check_later,
        )
        self._lock = threading.Lock()  # protects the counters
        self._starting = threading.Lock()  # one start at a time
        self._used_at = time.monotonic()
        self._is_closed = False
        self._held: dict[int, int] = {}
        """Descriptors of machine-wide locks, by the index of the server."""

    @contextmanager
    def used(self) -> Iterator[None]:
        with self._lock:
            self.n_blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self.n_blocks -= 1
                self._used_at = time.monotonic()

    def idle_for_s(self) -> float:
        """Since when nobody uses it; negative while somebody does."""
        with self._lock:
            if self.n_blocks or not self.gate.is_idle:
                self._used_at = time.monotonic()
                return -1.0
            return time.monotonic() - self._used_at

    def first_server(self) -> Server:
        with self._starting:
            place = self.gate.open_place()
            if place is None:
                place = self._started()
                self.gate.opened(place)
            return place.server

    def close(self) -> None:
        self._is_closed = True
        with self._starting:
            for place in self.gate.places():
                place.server.close()
                self._let_go(place.index)
                self.gate.closed(place)

    # --- starting and stopping ------------------------------------------------------------------

    def _start_later(self) -> None:
        threading.Thread(target=self._start, name=f"start-{self.spec.name}", daemon=True).start()

    def _start(self) -> None:
        with self._starting:
            if self.gate.usage().waiting == 0:
                self.gate.start_failed(ServerStartError("nobody waits"), pause_s=0.0)
                return
            try:
                place = self._started()
            except _MachineFullError as exc:
                self.gate.start_failed(exc, pause_s=MACHINE_FULL_S)
            except Exception as exc:  # boundary: who waits gets the reason
                log.warning("server did not start", server=self.spec.name, reason=str(exc))
                self.gate.start_failed(exc)
            else:
                self.gate.opened(place)
                if self._is_closed:
                    self._retire_later(place)

    def _started(self) -> Place:
        """Needs the starting lock."""
        taken = {place.index: place for place in self.gate.places()}
        index = next(i for i in range(len(taken) + 1) if i not in taken)
        if any(not place.is_closing for place in taken.values()):
            self._hold(index)
        key = self.spec.digest
        server = self.spec.make(self.folder / (f"{key}-{index}" if index else key))
        try:
            # A server that somebody else runs is not tried here: each episode finds out for itself.
            if not server.is_alive:
                server.wait_for_ready(server.start_container())
        except BaseException:
            server.close()
            self._let_go(index)
            raise
        return Place(
            server,
            index,
            cap=1 if self.spec.is_single_use else server.capacity,
            is_ours=self.spec.is_ours,
            is_single_use=self.spec.is_single_use,
        )

    def _retire_later(self, place: Place) -> None:
        threading.Thread(target=self._retire, args=(place,), daemon=True).start()

    def _retire(self, place: Place) -> None:
        try:
            place.server.close()
        except Exception as exc:  # boundary: a server that cannot be stopped must not hold a slot
            log.warning("server was not stopped", server=self.spec.name, reason=str(exc))
        finally:
            self._let_go(place.index)
            self.gate.closed(place)

    def _check_later(self, place: Place) -> None:
        threading.Thread(target=self._check, args=(place,), daemon=True).start()

    def _check(self, place: Place) -> None:
        """A process closes its sockets a moment before it is seen to have ended."""
        pause = threading.Event()
        deadline = time.monotonic() + DYING_S
        while place.server.is_alive and time.monotonic() < deadline:
            pause.wait(0.02)
        self.gate.checked(place)

    # --- the limit of the machine ---------------------------------------------------------------

    def _hold(self, index: int) -> None:
        """One of the machine's locks for further servers. `_MachineFullError` if none is free."""
        folder = self.folder / "servers"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        # The first server of each process needs none, so one fewer is given out.
        for number in range(1, self.spec.max_servers):
            descriptor = os.open(folder / f"{number}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(descriptor)
                continue
            self._held[index] = descriptor
            return
        raise _MachineFullError("other processes of this machine run all servers that are allowed")

    def _let_go(self, index: int) -> None:
        descriptor = self._held.pop(index, None)
        if descriptor is not None:
            os.close(descriptor)


class _MachineFullError(ServerStartError):
    """The limit of servers on this machine is reached by other processes."""
