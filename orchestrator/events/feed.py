"""The shared feed: one reader per stream and process, however many sockets watch it.

The reader follows the log's head and offers each new frame, encoded once, to every watcher's
bounded queue. A watcher reads privately up to the head it joined at, then follows; one whose queue
is full is dropped from the feed and catches up privately again. So a slow browser costs a bounded
amount of memory and never delays another one.

Wake-ups only end a wait. A poll once a second is the fallback.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

import structlog
from django.db import Error
from django.utils import timezone

from orchestrator import measures
from orchestrator.events.frames import Frame, read_frame, read_head
from orchestrator.events.wakers import Waker, make_waker

log = structlog.get_logger(__name__)

POLL_S = 1.0
COLLECT_S = 0.04
"""Between two frames: at 100 events/s and 50 watchers this took the server from 32 to 9 % CPU."""
_QUEUE_FRAMES = 32
_LINGER_S = 5.0


class Watcher:
    """One socket's place in a feed."""

    def __init__(self, joined_at: int) -> None:
        self.joined_at = joined_at
        """The feed's head when it joined: everything above comes through the queue."""
        self.frames: asyncio.Queue[Frame | None] = asyncio.Queue(_QUEUE_FRAMES)
        """None says that the feed has ended."""
        self.is_dropped = False


class Feed:
    def __init__(self, stream_id: int, head: int) -> None:
        self.stream_id = stream_id
        self.head = head
        self.watchers: set[Watcher] = set()
        self.wake = asyncio.Event()

    def join(self) -> Watcher:
        watcher = Watcher(self.head)
        self.watchers.add(watcher)
        return watcher

    def offer(self, frame: Frame) -> None:
        self.head = frame.last_seq
        for watcher in list(self.watchers):
            try:
                watcher.frames.put_nowait(frame)
            except asyncio.QueueFull:
                watcher.is_dropped = True
                self.watchers.discard(watcher)

    async def run(self) -> None:
        """Follows the log until nobody has watched for a while."""
        unwatched_s = 0.0
        # No await between the last look at the watchers and the end: none can join an ended feed.
        while self.watchers or unwatched_s < _LINGER_S:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S):
                    await self.wake.wait()
            self.wake.clear()
            unwatched_s = 0.0 if self.watchers else unwatched_s + POLL_S
            try:
                await self._read_on()
            except Error as error:
                log.warning("feed cannot read", stream_id=self.stream_id, error=str(error))
                await asyncio.sleep(POLL_S)
                self.wake.set()
            await asyncio.sleep(COLLECT_S)

    async def _read_on(self) -> None:
        while True:
            frame = await read_frame(self.stream_id, self.head)
            if frame.last_seq > self.head:
                if frame.written_at is not None:
                    lag = timezone.now() - frame.written_at
                    measures.FEED_LAG_SECONDS.observe(max(0.0, lag.total_seconds()))
                self.offer(frame)
            if not frame.is_full:
                return


class Hub:
    """All feeds of this process and the waker that serves them. Lives on one event loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, Feed] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()
        self._waker: Waker = make_waker(
            lambda stream_ids: self._loop.call_soon_threadsafe(self._wake, stream_ids)
        )
        self._waker.start()

    async def feed(self, stream_id: int) -> Feed:
        """The running feed of the stream. Raises django.db.Error."""
        async with self._opening:
            feed = self._feeds.get(stream_id)
            if feed is None:
                # Watched before the head is read: an append in between is a wake-up, not a gap.
                self._waker.watch(stream_id)
                try:
                    feed = Feed(stream_id, await read_head(stream_id))
                except Error:
                    self._waker.unwatch(stream_id)
                    raise
                self._feeds[stream_id] = feed
                task = asyncio.create_task(self._run(feed), name=f"feed-{stream_id}")
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        return feed

    async def frames(self, stream_id: int, after: int) -> AsyncGenerator[Frame, None]:
        """Every event after `after`, in order, once, for ever. The first frame may be empty."""
        seq, is_first = after, True
        while True:
            feed = await self.feed(stream_id)
            watcher = feed.join()
            try:
                while seq < watcher.joined_at or is_first:
                    is_first = False
                    frame = await read_frame(stream_id, seq)
                    seq = frame.last_seq
                    yield frame
                while not watcher.is_dropped:
                    offered = await watcher.frames.get()
                    if offered is None:
                        await asyncio.sleep(POLL_S)
                        break
                    if offered.last_seq <= seq:
                        continue
                    if offered.first_seq != seq + 1:
                        break  # the private reading ended inside this frame
                    seq = offered.last_seq
                    yield offered
            finally:
                feed.watchers.discard(watcher)

    async def _run(self, feed: Feed) -> None:
        try:
            await feed.run()
        except Exception:
            # The outermost loop of the feed: its watchers open another one and go on.
            log.exception("feed failed", stream_id=feed.stream_id)
        finally:
            self._waker.unwatch(feed.stream_id)
            del self._feeds[feed.stream_id]
            for watcher in feed.watchers:
                watcher.is_dropped = True
                with suppress(asyncio.QueueFull):
                    watcher.frames.put_nowait(None)

    def _wake(self, stream_ids: frozenset[int] | None) -> None:
        for stream_id, feed in self._feeds.items():
            if stream_ids is None or stream_id in stream_ids:
                feed.wake.set()


_hubs: dict[asyncio.AbstractEventLoop, Hub] = {}


def hub() -> Hub:
    """The hub of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _hubs:
        _hubs[loop] = Hub()
    return _hubs[loop]
