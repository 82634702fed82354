"""The gate alone: slots, the queue, marks and drained servers, with servers that only pretend."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.environments import admission
from orchestrator.environments.admission import (
    Gate,
    Lease,
    Place,
    SlotRetractedError,
    Ticket,
    Usage,
    admitted,
)
from orchestrator.environments.errors import ServerStartError


@dataclass(eq=False)
class Pretended:
    """A server as far as the gate looks at it."""

    base_url: str
    is_alive: bool = True


class House:
    """A gate whose servers start when the test says so."""

    def __init__(self, max_servers: int = 1, cap: int = 2, is_ours: bool = True) -> None:
        self.cap, self.is_ours = cap, is_ours
        self.wanted = 0
        self.retired: list[Place] = []
        self.checked: list[Place] = []
        self.made = 0
        self.gate = Gate(
            max_servers, want=self._want, retire=self.retired.append, check=self.checked.append
        )

    def _want(self) -> None:
        self.wanted += 1

    def open(self) -> Place:
        server: Any = Pretended(f"http://server-{self.made}")
        place = Place(server, self.made, self.cap, self.is_ours)
        self.made += 1
        self.gate.opened(place)
        return place

    def enter(self, n: int = 1) -> list[Ticket]:
        return [self.gate.enter() for _ in range(n)]


def leases(tickets: list[Ticket]) -> list[Lease]:
    return [ticket.granted.result() for ticket in tickets if ticket.granted.done()]


def test_slots_are_given_out_first_come_first_served() -> None:
    house = House()
    tickets = house.enter(4)
    assert house.wanted == 1
    house.open()
    assert [ticket.granted.done() for ticket in tickets] == [True, True, False, False]
    assert [house.gate.position(ticket) for ticket in tickets] == [0, 0, 1, 2]
    leases(tickets)[1].release()
    assert [ticket.granted.done() for ticket in tickets] == [True, True, True, False]
    assert house.gate.usage() == Usage(2, 2, 1, 1, 1, is_starting=False)
    assert house.gate.usage().text == "slots: 2 of 2 in use, 1 waiting, 1 server (limit 1)"


def test_another_server_is_asked_for_one_at_a_time_and_up_to_the_limit() -> None:
    house = House(max_servers=2)
    house.enter(9)
    assert house.wanted == 1
    house.open()
    assert house.wanted == 2
    house.open()
    assert house.wanted == 2
    assert house.gate.usage().in_use == 4


def test_an_emptier_server_goes_first() -> None:
    house = House(max_servers=2, cap=3)
    first, second = house.open(), house.open()
    house.enter(4)
    assert (first.in_use, second.in_use) == (2, 2)


def test_the_servers_word_goes_before_what_was_declared() -> None:
    """Who is above the cap asks again, and keeps its place in the order."""
    house = House(cap=64)
    house.open()
    tickets = house.enter(3)
    later = leases(tickets)[1:]
    for lease in later:
        with pytest.raises(SlotRetractedError) as caught:
            lease.refused(waited_s=0.0, maximum=1)
        lease.release()
        again = house.gate.enter(caught.value.number)
        assert not again.granted.done()
    newcomer = house.gate.enter()
    assert house.gate.usage().slots == 1
    assert house.gate.position(newcomer) == 3


def test_a_refusal_that_somebody_else_causes_is_waited_for() -> None:
    house = House(is_ours=False)
    house.open()
    (lease,) = leases(house.enter())
    lease.refused(waited_s=1000.0, maximum=2)


def test_a_marked_slot_is_probed_by_one_at_a_time_and_cleared_by_success() -> None:
    house = House(cap=1)
    place = house.open()
    (lease,) = leases(house.enter())
    lease.release(is_stuck=True)
    assert place.marks == 1
    tickets = house.enter(2)
    (probe,) = leases(tickets)
    assert probe.is_probe
    probe.started()
    assert place.marks == 0
    probe.release()
    assert not leases(tickets)[1].is_probe


def test_marks_never_stop_a_server_that_has_other_slots() -> None:
    house = House(cap=3)
    house.open()
    first, *_ = leases(house.enter())
    first.release(is_stuck=True)
    granted = leases(house.enter(3))
    assert [lease.is_probe for lease in granted] == [False, False, True]


def test_a_server_of_ours_whose_slot_does_not_come_back_is_drained_and_replaced() -> None:
    house = House(cap=2)
    place = house.open()
    stuck, busy = leases(house.enter(2))
    stuck.release(is_stuck=True)
    (probe,) = leases(house.enter())
    probe.refused(waited_s=0.0, maximum=2)
    with pytest.raises(SlotRetractedError):
        probe.refused(waited_s=admission.STUCK_S, maximum=2)
    probe.release()
    waiting = house.gate.enter(probe.number)
    assert house.retired == []
    busy.release()
    assert house.retired == [place]
    house.gate.closed(place)
    assert house.wanted == 1
    house.open()
    assert waiting.granted.done()


def test_a_dead_server_gets_no_further_episode() -> None:
    house = House()
    place = house.open()
    place.server.is_alive = False  # type: ignore[misc]
    (ticket,) = house.enter()
    assert not ticket.granted.done()
    assert house.retired == [place]
    house.gate.closed(place)
    house.open()
    assert ticket.granted.done()


def test_a_server_that_lost_a_connection_is_looked_at_first() -> None:
    house = House()
    place = house.open()
    (lease,) = leases(house.enter())
    lease.release()
    lease.suspect(is_unreachable=False)
    (ticket,) = house.enter()
    assert not ticket.granted.done()
    assert house.checked == [place]
    house.gate.checked(place)
    assert ticket.granted.done()


def test_who_waits_is_told_when_no_server_starts() -> None:
    house = House(max_servers=2)
    tickets = house.enter(2)
    house.gate.start_failed(ServerStartError("it printed nothing"))
    for ticket in tickets:
        with pytest.raises(ServerStartError, match="printed nothing"):
            ticket.granted.result(0)


def test_a_further_server_that_does_not_start_is_not_tried_again_at_once() -> None:
    house = House(max_servers=2, cap=1)
    house.open()
    tickets = house.enter(3)
    assert house.wanted == 1
    house.gate.start_failed(ServerStartError("no memory"))
    assert not tickets[1].granted.done()
    leases(tickets)[0].release()
    assert house.wanted == 1
    assert tickets[1].granted.done()


def test_who_gives_up_leaves_the_queue_or_gives_the_slot_back() -> None:
    house = House(cap=1)
    house.open()
    first, second, third = house.enter(3)
    house.gate.leave(second)
    house.gate.leave(first)
    assert third.granted.done()
    assert house.gate.usage().waiting == 0


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    house = House(cap=1)
    house.open()
    told: list[int] = []

    async def hear(position: int, usage: Usage) -> None:
        told.append(position)

    async with admitted(house.gate, hear):
        waiting = asyncio.create_task(admitted(house.gate, hear).__aenter__())
        while not told:
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        assert house.gate.usage().waiting == 0
    assert house.gate.usage().in_use == 0
    assert told == [1]


@settings(max_examples=60, deadline=None)
@given(
    caps=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    moves=st.lists(st.tuples(st.sampled_from("erslcd"), st.integers(0, 9)), max_size=60),
)
def test_slots_are_never_given_twice_and_never_lost(
    caps: list[int], moves: list[tuple[str, int]]
) -> None:
    """Whatever happens in whatever order: counts fit, and when all is over everyone was served."""
    house = House(max_servers=len(caps))
    for cap in caps:
        house.cap = cap
        house.open()
    tickets: list[Ticket] = []
    held: list[Lease] = []

    def collect() -> None:
        for ticket in [t for t in tickets if t.granted.done()]:
            tickets.remove(ticket)
            held.append(ticket.granted.result())

    def mend() -> None:
        while house.retired:
            house.gate.closed(house.retired.pop())
            house.cap = 2
            house.open()

    for move, n in moves:
        if move == "e":
            tickets.append(house.gate.enter())
        elif move == "l" and tickets:
            house.gate.leave(tickets.pop(n % len(tickets)))
        elif move == "d":
            places = house.gate.places()
            places[n % len(places)].server.is_alive = False  # type: ignore[misc]
            house.gate.settle()
        elif held:
            lease = held.pop(n % len(held))
            if move == "s":
                lease.release(is_stuck=True)
            elif move == "c":
                lease.started()
                held.append(lease)
            else:
                lease.release()
        mend()
        collect()
        for place in house.gate.places():
            assert 0 <= place.in_use <= place.cap
            assert 0 <= place.marks <= place.cap
            assert place.in_use == sum(lease.place is place for lease in held)
    while held or tickets:
        assert held, "somebody waits and nobody runs"
        lease = held.pop()
        lease.started()
        lease.release()
        mend()
        collect()
    assert house.gate.is_idle


def test_many_threads_share_a_gate() -> None:
    house = House(cap=3)
    house.open()
    running, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        for _ in range(50):
            lease = house.gate.enter().granted.result(10)
            with lock:
                running += 1
                most = max(most, running)
            with lock:
                running -= 1
            lease.release()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert most <= 3
    assert house.gate.is_idle
