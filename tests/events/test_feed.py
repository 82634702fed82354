"""The shared feed in this process's event loop, on the real log."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import threading
from collections.abc import AsyncIterator

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection

from orchestrator.events import feed as feed_module
from orchestrator.events.feed import Hub
from orchestrator.events.frames import Frame, _readers
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.events.wakers import DataVersionWaker, NotifyWaker, Waker
from tests.base import make_project
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


def close_readers() -> None:
    """The feed's threads keep connections open, which would block dropping a database."""
    both = threading.Barrier(2)

    def close() -> None:
        both.wait(5)  # so that each of the two threads takes one of the two calls
        connection.close()

    for closing in [_readers.submit(close) for _ in range(2)]:
        closing.result()


@pytest.fixture
async def hub() -> AsyncIterator[Hub]:
    hub = Hub()
    yield hub
    hub._waker.stop()
    for task in hub._tasks:
        task.cancel()
    await asyncio.wait(hub._tasks) if hub._tasks else None
    close_readers()


def new_stream() -> int:
    return create_stream(project=make_project(), kind="run").pk


def write(stream_id: int, n: int, size: int = 1) -> None:
    for _ in range(n):
        append(stream_id=stream_id, items=[NewEvent("tick", {"text": "x" * 100})] * size)


def seqs(frames: list[Frame]) -> list[int]:
    return [event["seq"] for frame in frames for event in json.loads(frame.text)["events"]]


async def collect(hub: Hub, stream_id: int, after: int, until: int, frames: list[Frame]) -> None:
    async for frame in hub.frames(stream_id, after):
        frames.append(frame)
        if frame.last_seq >= until:
            return


async def test_many_watchers_from_different_places_each_get_everything(hub: Hub) -> None:
    stream_id = await sync_to_async(new_stream)()
    await sync_to_async(write)(stream_id, 3, 400)
    starts = [0, 0, 5, 600, 1200, 1300]
    got: list[list[Frame]] = [[] for _ in starts]
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        for start, frames in zip(starts, got, strict=True):
            group.create_task(collect(hub, stream_id, start, 1400, frames))
        await sync_to_async(write)(stream_id, 100, 2)
    for start, frames in zip(starts, got, strict=True):
        assert seqs(frames) == list(range(start + 1, 1401))


async def test_the_first_frame_comes_at_once_even_if_empty(hub: Hub) -> None:
    stream_id = await sync_to_async(new_stream)()
    async with asyncio.timeout(2):
        frame = await anext(hub.frames(stream_id, 0))
    assert json.loads(frame.text) == {"events": [], "head": 0}


async def test_a_watcher_that_does_not_read_is_dropped_and_catches_up(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed_module, "_QUEUE_FRAMES", 2)
    monkeypatch.setattr(feed_module, "COLLECT_S", 0.001)
    stream_id = await sync_to_async(new_stream)()
    slow = hub.frames(stream_id, 0)
    frames = [await anext(slow)]
    feed = await hub.feed(stream_id)
    (watcher,) = feed.watchers
    async with asyncio.timeout(20):
        while not watcher.is_dropped:
            await sync_to_async(write)(stream_id, 1)
            await asyncio.sleep(0.03)
        head = feed.head
        while frames[-1].last_seq < head:
            frames.append(await anext(slow))
    assert seqs(frames) == list(range(1, frames[-1].last_seq + 1))


async def test_a_failed_feed_is_opened_again(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "POLL_S", 0.05)
    stream_id = await sync_to_async(new_stream)()
    frames: list[Frame] = []
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(collect(hub, stream_id, 0, 4, frames))
        await asyncio.sleep(0.1)
        for task in list(hub._tasks):
            task.cancel()
        await sync_to_async(write)(stream_id, 4)
    assert seqs(frames) == [1, 2, 3, 4]


class Woken:
    """A waker with what it said so far."""

    def __init__(self, waker: Waker) -> None:
        self.said: list[frozenset[int] | None] = []
        self.waker = waker
        waker._wake = self.said.append

    def start(self, stream_id: int) -> None:
        self.waker.watch(stream_id)
        self.waker.start()

    def assert_survived(self, stream_id: int) -> None:
        wait_until(lambda: self.waker.restarts == 1, limit_s=60, what="the waker to reconnect")
        wait_until(lambda: self.said.count(None) == 2, limit_s=60, what="all to be woken again")
        self.said.clear()
        write(stream_id, 1)
        wait_until(lambda: frozenset({stream_id}) in self.said, limit_s=60, what="a wake-up")


# Each database has its waker; the other stack's tests run with the other stack.
if settings.STACK == "embedded":

    def test_the_polling_waker_survives_a_broken_connection(
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        waker, broken = DataVersionWaker(lambda _: None), [True]
        woken = Woken(waker)
        real = waker._advanced

        def break_once(database: sqlite3.Connection, known: dict[int, int]) -> frozenset[int]:
            if broken:
                broken.clear()
                raise OSError("disk is gone")
            return real(database, known)

        monkeypatch.setattr(waker, "_advanced", break_once)
        stream_id = new_stream()
        woken.start(stream_id)
        woken.assert_survived(stream_id)

else:

    def test_the_notified_waker_survives_a_broken_connection() -> None:
        woken, stream_id = Woken(NotifyWaker(lambda _: None)), new_stream()
        woken.start(stream_id)
        wait_until(lambda: None in woken.said, limit_s=60, what="the waker to listen")
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND query LIKE 'LISTEN%%'"
            )
        woken.assert_survived(stream_id)
        # A connection that listens would keep the test database from being dropped.
        woken.waker.stop()
