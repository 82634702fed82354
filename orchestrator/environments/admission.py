"""Admission: which rollout may open an episode on which server, and who waits.

OpenEnv tells nobody how many slots are free, so they are counted here: one `Gate` for the servers
of one specification in this process, shared by all runs that use them. A lease is one episode on
one server. Whoever finds no free slot waits in one queue, first come first served; while some wait
and the limit allows, another server is asked for.

What a server says goes before what was declared. A refusal that names a maximum sets the cap of
that server. A step that was given up keeps its slot on the server until it ends there, so its lease
leaves a mark, and a marked slot is given out again only to one prober at a time. A server of ours
whose marked slots do not come back is drained: it gets no further episode, and is replaced when
those that run on it have ended.

Pure: threads and locks, but no processes. Servers are started and stopped by `servers.pool`.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from bisect import insort
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from orchestrator.environments.errors import EnvironmentsError
from orchestrator.environments.servers.spec import Server

STUCK_S = 10.0
"""How long a server of ours may refuse a prober before it is drained."""
START_AGAIN_S = 30.0
"""Pause after a failed start of a further server."""
TELL_EVERY_S = 15.0
"""How often a waiting rollout says where it stands."""

_numbers = itertools.count(1)


class SlotRetractedError(EnvironmentsError, RuntimeError):
    """The server had no slot after all, before the episode began; ask again with `number`."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(f"the slot was taken back (place {number})")
        self.number = number

    def __reduce__(self) -> tuple[object, ...]:
        return SlotRetractedError, (self.number,)


@dataclass(frozen=True)
class Usage:
    """How full the servers of one specification are."""

    in_use: int
    slots: int
    """Of all running servers."""
    waiting: int
    servers: int
    max_servers: int
    is_starting: bool

    @property
    def text(self) -> str:
        servers = "1 server" if self.servers == 1 else f"{self.servers} servers"
        return (
            f"slots: {self.in_use} of {self.slots} in use, {self.waiting} waiting, "
            f"{servers} (limit {self.max_servers})"
        )


@dataclass(eq=False)
class Place:
    """A server and its slots; owned by the gate."""

    server: Server
    index: int
    """Among the servers of the specification, from 0."""
    cap: int
    """Declared, or what the server said."""
    is_ours: bool
    """Whether it can be started again."""
    is_single_use: bool = False
    """Replaced after an episode."""
    in_use: int = 0
    marks: int = 0
    """Slots that the server may still hold for steps that were given up."""
    is_probed: bool = False
    """A lease on a marked slot has not been answered yet."""
    is_checked: bool = False
    """Somebody finds out whether it has died."""
    is_draining: bool = False
    is_closing: bool = False

    @property
    def is_open(self) -> bool:
        return not (self.is_checked or self.is_draining or self.is_closing)


@dataclass(eq=False)
class Lease:
    """One slot for one episode. `release` it exactly once."""

    gate: Gate
    place: Place
    number: int
    """Its holder's place in the order of arrival."""
    is_probe: bool = False
    _is_released: bool = False

    @property
    def base_url(self) -> str:
        return self.place.server.base_url

    def started(self) -> None:
        """The server took the episode: what it holds beside ours is at most the rest."""
        self.gate.note_started(self)

    def refused(self, *, waited_s: float, maximum: int | None) -> None:
        """The server has no slot. Returns if waiting on it makes sense.

        `SlotRetractedError`: give this lease back and ask again.
        """
        if self.gate.note_refused(self, waited_s, maximum):
            raise SlotRetractedError(self.number)

    @property
    def is_ours(self) -> bool:
        return self.place.is_ours

    def suspect(self, *, is_unreachable: bool) -> None:
        """The connection was lost, or could not be made: no further episode until it is known
        whether the server lives. One of ours that lives and cannot be reached is replaced.
        """
        if self.place.is_ours:
            self.gate.suspect(self.place, is_unreachable)

    def release(self, *, is_stuck: bool = False) -> None:
        """`is_stuck`: a request was still running on the server."""
        if not self._is_released:
            self._is_released = True
            self.gate.release(self, is_stuck)


@dataclass(eq=False)
class Ticket:
    """A place in the queue."""

    number: int
    granted: Future[Lease] = field(default_factory=Future)


class Gate:
    """The slots of one specification's servers. Thread-safe."""

    def __init__(
        self,
        max_servers: int,
        *,
        want: Callable[[], None],
        retire: Callable[[Place], None],
        check: Callable[[Place], None],
    ) -> None:
        """`want` starts another server and ends in `opened` or `start_failed`; `retire` closes one
        and ends in `closed`; `check` finds out whether one lives and ends in `checked`. None of
        them may block.
        """
        self.max_servers = max_servers
        self._want, self._retire, self._check = want, retire, check
        self._lock = threading.Lock()  # protects everything below, the places included
        self._places: list[Place] = []
        self._queue: list[Ticket] = []
        self._is_starting = False
        self._start_again_at = 0.0

    # --- for rollouts ---------------------------------------------------------------------------

    def enter(self, number: int | None = None) -> Ticket:
        """Joins the queue: at its end, or where `number` stood before."""
        ticket = Ticket(next(_numbers) if number is None else number)
        with self._lock:
            insort(self._queue, ticket, key=lambda queued: queued.number)
        self.settle()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """Gives up waiting; a slot that was granted meanwhile is free again."""
        with self._lock:
            if ticket in self._queue:
                self._queue.remove(ticket)
                ticket.granted.cancel()
                return
        if not ticket.granted.cancelled() and ticket.granted.exception() is None:
            ticket.granted.result().release()

    def position(self, ticket: Ticket) -> int:
        """How many are served before it, plus one; 0 if it waits no longer."""
        with self._lock:
            return self._queue.index(ticket) + 1 if ticket in self._queue else 0

    def usage(self) -> Usage:
        with self._lock:
            running = [place for place in self._places if not place.is_closing]
            return Usage(
                in_use=sum(place.in_use for place in running),
                slots=sum(place.cap for place in running),
                waiting=len(self._queue),
                servers=len(running),
                max_servers=self.max_servers,
                is_starting=self._is_starting,
            )

    # --- for leases -----------------------------------------------------------------------------

    def note_started(self, lease: Lease) -> None:
        place = lease.place
        with self._lock:
            if lease.is_probe:
                place.is_probed = lease.is_probe = False
            place.marks = max(0, min(place.marks, place.cap - place.in_use))
        self.settle()

    def note_refused(self, lease: Lease, waited_s: float, maximum: int | None) -> bool:
        """Whether the lease should be given back; see `Lease.refused`."""
        place = lease.place
        with self._lock:
            if maximum is not None and maximum >= 1:
                place.cap = maximum
            if place.is_ours and place.marks and waited_s >= STUCK_S:
                place.is_draining = True
            return not place.is_open or place.in_use > place.cap

    def suspect(self, place: Place, is_unreachable: bool) -> None:
        with self._lock:
            place.is_draining = place.is_draining or is_unreachable
            is_first, place.is_checked = not place.is_checked, True
        if is_first:
            self._check(place)

    def release(self, lease: Lease, is_stuck: bool) -> None:
        place = lease.place
        with self._lock:
            place.in_use -= 1
            place.is_draining = place.is_draining or place.is_single_use
            if lease.is_probe:
                place.is_probed = False
            if is_stuck:
                place.marks = min(place.cap, place.marks + 1)
        self.settle()

    # --- for the pool ---------------------------------------------------------------------------

    def opened(self, place: Place) -> None:
        with self._lock:
            self._is_starting = False
            self._places.append(place)
        self.settle()

    def start_failed(self, reason: Exception, *, pause_s: float = START_AGAIN_S) -> None:
        """Who waits goes on waiting while there is a server; without one, they get the reason."""
        with self._lock:
            self._is_starting = False
            self._start_again_at = time.monotonic() + pause_s
            failed: list[Ticket] = []
            if not self._places:
                failed, self._queue = self._queue, []
                self._start_again_at = 0.0
        for ticket in failed:
            if ticket.granted.set_running_or_notify_cancel():
                ticket.granted.set_exception(reason)

    def closed(self, place: Place) -> None:
        with self._lock:
            if place in self._places:
                self._places.remove(place)
        self.settle()

    def checked(self, place: Place) -> None:
        with self._lock:
            place.is_checked = False
        self.settle()

    def places(self) -> list[Place]:
        with self._lock:
            return list(self._places)

    def open_place(self) -> Place | None:
        """The first server that could take an episode."""
        self.settle()
        with self._lock:
            return next((place for place in self._places if place.is_open), None)

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not (self._queue or any(place.in_use for place in self._places))

    def settle(self) -> None:
        """Brings servers and queue together; after every change."""
        granted: list[tuple[Ticket, Lease]] = []
        with self._lock:
            retired = self._take_retired()
            while self._queue and (place := self._free()) is not None:
                ticket = self._queue.pop(0)
                is_probe = place.cap - place.in_use - place.marks <= 0
                place.in_use += 1
                place.is_probed = place.is_probed or is_probe
                granted.append((ticket, Lease(self, place, ticket.number, is_probe)))
            wants = self._wants_server()
            self._is_starting = self._is_starting or wants
        for place in retired:
            self._retire(place)
        for ticket, lease in granted:
            if ticket.granted.set_running_or_notify_cancel():
                ticket.granted.set_result(lease)
            else:
                lease.release()
        if wants:
            self._want()

    def _take_retired(self) -> list[Place]:
        retired = []
        for place in self._places:
            is_dead = not place.is_closing and not place.server.is_alive
            is_drained = place.is_draining and not place.in_use
            if not place.is_closing and (is_dead or is_drained):
                place.is_closing = True
                retired.append(place)
        return retired

    def _free(self) -> Place | None:
        """Where an episode may be opened: the emptiest server, else one marked slot to probe."""
        running = [place for place in self._places if place.is_open and place.in_use < place.cap]
        clear = [place for place in running if place.cap > place.in_use + place.marks]
        if clear:
            return max(clear, key=lambda place: place.cap - place.in_use - place.marks)
        return next((place for place in running if not place.is_probed), None)

    def _wants_server(self) -> bool:
        return (
            bool(self._queue)
            and not self._is_starting
            and len(self._places) < self.max_servers
            and time.monotonic() >= self._start_again_at
        )


Told = Callable[[int, Usage], Awaitable[None]]
"""Hears the place in the queue and how full the servers are."""


@asynccontextmanager
async def admitted(gate: Gate, told: Told, number: int | None = None) -> AsyncIterator[Lease]:
    """A slot for the time of the block; `told` hears of the wait, if there is one.

    The holder releases the lease itself where it knows of a request that still runs; else it is
    released here as free. `ServerStartError` if there is no server and none can be started.
    """
    ticket = gate.enter(number)
    waited = asyncio.wrap_future(ticket.granted)
    try:
        while not waited.done():
            if position := gate.position(ticket):
                await told(position, gate.usage())
            await asyncio.wait([waited], timeout=TELL_EVERY_S)
            gate.settle()
        lease = waited.result()
    except BaseException:
        gate.leave(ticket)
        raise
    try:
        yield lease
    finally:
        lease.release()
