"""Writes of a running batch of rollouts, from an event loop into the database.

A single thread owns the connection and commits whatever has gathered since its last commit, so that
32 rollouts cost few transactions. `record` returns after the commit: nothing is acknowledged or
acted upon before it is in the log. `post` hands events over without waiting; writes are committed
in the order in which they were given, so whatever is recorded later finds them in the log. Every
transaction holds the job's fence, so that a zombie worker writes nothing. The writes of a commit
that fails are tried one by one, so that a bad one takes no other with it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.db import OperationalError, connection, transaction

from orchestrator.events.services import (
    Fence,
    LeaseLost,
    NewEvent,
    append_at_once,
    append_many,
    hold_fence,
)

MAX_BATCH = 64
"""Writes in one transaction; events per commit gain little beyond 50 (measured, stack reference).
"""


@dataclass(frozen=True)
class Write:
    """Rows to change and events to append, together or not at all."""

    apply: Callable[[], Mapping[int, Sequence[NewEvent]]]
    """Runs inside the transaction; returns events by stream id. May be called again after a failure
    of the transaction.
    """
    at_end: Callable[[], Mapping[int, Sequence[NewEvent]]] | None = None
    """The same, after all writes of the transaction, and once for those that share it: what tells
    the sum of many writes is worked out once.
    """


@dataclass(frozen=True)
class Posted:
    """Events on their way into one stream."""

    stream_id: int
    events: Sequence[NewEvent]
    done: asyncio.Future[int]
    """The last sequence number, once they are committed."""


@dataclass(frozen=True)
class _Pending:
    write: Write
    done: asyncio.Future[int]


class Recorder:
    """Use as an async context manager around everything that records."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._queue: queue.SimpleQueue[_Pending | Posted | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __aenter__(self) -> Recorder:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    async def record(self, write: Write) -> None:
        """Commits `write`.

        Raises:
            LeaseLost: another attempt owns the job.
            django.db.Error: the database refused (full disk, for instance); nothing was written.
        """
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._queue.put(_Pending(write, done))
        # Shielded: a cancelled rollout must not unsay a write that is on its way.
        await asyncio.shield(done)

    def post(self, stream_id: int, events: Sequence[NewEvent]) -> Posted:
        """Hands events of one stream over; await `done` where they have to be committed."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        posted = Posted(stream_id, events, done)
        self._queue.put(posted)
        return posted

    async def append(self, stream_id: int, events: Sequence[NewEvent]) -> int:
        """Commits events to one stream and returns the last sequence number."""
        return await asyncio.shield(self.post(stream_id, events).done)

    # --- the thread -----------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            while (first := self._queue.get()) is not None:
                batch, ends = self._gather(first)
                self._commit(batch)
                if ends:
                    return
        finally:
            connection.close()

    def _gather(self, first: _Pending | Posted) -> tuple[list[_Pending | Posted], bool]:
        batch = [first]
        while len(batch) < MAX_BATCH:
            try:
                pending = self._queue.get_nowait()
            except queue.Empty:
                break
            if pending is None:
                return batch, True
            batch.append(pending)
        return batch, False

    def _commit(self, batch: Sequence[_Pending | Posted]) -> None:
        try:
            seqs = self._written(batch)
        except Exception as exc:  # boundary: handed to the waiter, who records or ends the run
            if len(batch) > 1 and not isinstance(exc, LeaseLost | OperationalError):
                for pending in batch:
                    self._commit([pending])
                return
            self._tell([(pending.done, exc) for pending in batch])
        else:
            self._tell([(item.done, seq) for item, seq in zip(batch, seqs, strict=True)])

    def _written(self, batch: Sequence[_Pending | Posted]) -> list[int]:
        """One transaction; for each write the last sequence of its stream, 0 for row changes."""
        events: dict[int, list[NewEvent]] = {}
        ends: list[tuple[int, int]] = []
        if all(isinstance(item, Posted) for item in batch):
            return self._posted(batch)
        at_end: dict[Callable[[], Mapping[int, Sequence[NewEvent]]], None] = {}
        with transaction.atomic():
            hold_fence(self._fence)
            for item in batch:
                if isinstance(item, Posted):
                    gathered = events.setdefault(item.stream_id, [])
                    gathered.extend(item.events)
                    ends.append((item.stream_id, len(gathered)))
                    continue
                for stream_id, new in item.write.apply().items():
                    events.setdefault(stream_id, []).extend(new)
                ends.append((0, 0))
                if item.write.at_end is not None:
                    at_end[item.write.at_end] = None
            for tell in at_end:
                for stream_id, new in tell().items():
                    events.setdefault(stream_id, []).extend(new)
            last = append_many(batches=events)
        return [last[s] - len(events[s]) + n if s else 0 for s, n in ends]

    def _posted(self, batch: Sequence[_Pending | Posted]) -> list[int]:
        """Events alone, as every step of every rollout brings them."""
        events: dict[int, list[NewEvent]] = {}
        ends: list[tuple[int, int]] = []
        for item in batch:
            if isinstance(item, Posted):
                gathered = events.setdefault(item.stream_id, [])
                gathered.extend(item.events)
                ends.append((item.stream_id, len(gathered)))
        last = append_at_once(batches=events, fence=self._fence)
        return [last[s] - len(events[s]) + n for s, n in ends]

    def _tell(self, results: Sequence[tuple[asyncio.Future[int], int | Exception]]) -> None:
        """One wake-up of the loop for a whole commit."""

        def settle() -> None:
            for done, result in results:
                if done.done():
                    continue
                if isinstance(result, Exception):
                    done.set_exception(result)
                else:
                    done.set_result(result)

        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(settle)
        except RuntimeError:
            # The loop ended after an interruption; there is nobody left to tell.
            return
