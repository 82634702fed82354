"""The live feed over real sockets, on a real server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection

from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.services import enqueue
from tests.base import make_people
from tests.follower import Follower, open_socket
from tests.live import LiveStack, MakeStack
from tests.waiting import wait_until


def write(stream_id: int, n: int, size: int = 1) -> None:
    for _ in range(n):
        append(stream_id=stream_id, items=[NewEvent("tick", {"n": 1})] * size)


def read_until(socket: ClientConnection, last_seq: int) -> list[int]:
    seqs: list[int] = []
    while not seqs or seqs[-1] < last_seq:
        frame: dict[str, Any] = json.loads(socket.recv(timeout=60))
        seqs += [event["seq"] for event in frame["events"]]
        if seqs:
            assert frame["head"] == seqs[-1]
    return seqs


def test_the_feed_sends_what_was_and_what_comes_to_those_who_may_see_it(
    live_stack: LiveStack,
) -> None:
    people = make_people()
    stream = create_stream(project=people.project, kind="run")
    write(stream.pk, 3)

    with open_socket(live_stack, stream.pk, people.member) as socket:
        socket.send('{"after": 1}')
        assert read_until(socket, 3) == [2, 3]
        write(stream.pk, 2, 2)
        assert read_until(socket, 7) == [4, 5, 6, 7]
        socket.send('{"after": 0}')
        assert read_until(socket, 7) == [1, 2, 3, 4, 5, 6, 7]
        socket.send('{"after": "all"}')
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4400

    for user, origin in (
        (people.stranger, None),
        (None, None),
        (people.owner, "http://evil.example"),
    ):
        with pytest.raises(InvalidStatus) as refused:
            open_socket(live_stack, stream.pk, user, origin=origin)
        assert refused.value.response.status_code == 403


def test_a_user_may_not_hold_sockets_without_limit(make_stack: MakeStack) -> None:
    stack = make_stack(environ={"SWITCHBACK_FEED_SOCKETS_PER_USER": "2"})
    stack.start()
    people = make_people()
    stream = create_stream(project=people.project, kind="run")
    first = open_socket(stack, stream.pk, people.owner)
    second = open_socket(stack, stream.pk, people.owner)
    with pytest.raises(InvalidStatus):
        open_socket(stack, stream.pk, people.owner)
    first.close()

    def room_again() -> bool:
        try:
            open_socket(stack, stream.pk, people.owner).close()
        except InvalidStatus:
            return False
        return True

    wait_until(room_again, limit_s=60, what="the closed socket to be forgotten")
    second.close()


@pytest.mark.slow
def test_a_server_killed_twice_loses_and_repeats_nothing(make_stack: MakeStack) -> None:  # R7
    stack = make_stack()
    stack.start()
    people = make_people()
    stream = create_stream(project=people.project, kind="run")
    follower = Follower(stack, stream, people.member, last_seq=400)
    follower.start()
    for part in range(1, 5):
        write(stream.pk, 20, 5)
        wait_until(
            lambda part=part: follower.seqs[-1:] == [part * 100],  # type: ignore[misc] # default binds the loop's value
            limit_s=60,
            what=f"the follower to be at {part * 100}",
        )
        if part in (1, 2):
            stack.kill_child("web")
    follower.join(timeout=60)
    assert follower.seqs == list(range(1, 401))
    assert follower.connections >= 3


@pytest.mark.slow
def test_a_killed_worker_shows_no_gap_to_who_follows(make_stack: MakeStack) -> None:  # R8
    stack = make_stack()
    stack.start()
    people = make_people()
    stream = create_stream(project=people.project, kind="run")
    spec = {"stream_id": stream.pk, "n": 250, "pause_s": 0.02}
    job = enqueue(kind="fault.count", spec=spec)
    follower = Follower(stack, stream, people.member, last_seq=250)
    follower.start()
    wait_until(lambda: len(follower.seqs) > 20, limit_s=20, what="the job to run")
    stack.kill_child("worker")
    follower.join(timeout=60)
    assert follower.seqs == list(range(1, 251))
    wait_until(
        lambda: Job.objects.get(pk=job.pk).state == JobState.DONE, limit_s=60, what="the job to end"
    )
