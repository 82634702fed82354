"""Writes of a running batch of rollouts, from an event loop into the database.

A single thread owns the connection and commits whatever has gathered since its last commit, so that
32 rollouts cost few transactions. `record` returns after the commit: nothing is acknowledged or
acted upon before it is in the log. Every transaction holds the job's fence, so that a zombie worker
writes nothing. The writes of a commit that fails are tried one by one, so that a bad one takes no
other with it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from django.db import OperationalError, connection, transaction

from orchestrator.events.services import (
    Fence,
    LeaseLost,
    NewEvent,
    append,
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


@dataclass
class _Pending:
    write: Write
    loop: asyncio.AbstractEventLoop
    done: asyncio.Future[None] = field(repr=False)


class Recorder:
    """Use as an async context manager around everything that records."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self._queue: queue.Queue[_Pending | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="recorder", daemon=True)

    async def __aenter__(self) -> Recorder:
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
        loop = asyncio.get_running_loop()
        pending = _Pending(write, loop, loop.create_future())
        self._queue.put(pending)
        # Shielded: a cancelled rollout must not unsay a write that is on its way.
        await asyncio.shield(pending.done)

    async def append(self, stream_id: int, events: Sequence[NewEvent]) -> int:
        """Commits events to one stream and returns the last sequence number."""
        seqs: list[int] = []

        def apply() -> dict[int, Sequence[NewEvent]]:
            seqs.append(append(stream_id=stream_id, items=events))
            return {}

        await self.record(Write(apply))
        return seqs[-1]

    def _work(self) -> None:
        try:
            while (first := self._queue.get()) is not None:
                batch, ends = self._gather(first)
                self._commit(batch)
                if ends:
                    return
        finally:
            connection.close()

    def _gather(self, first: _Pending) -> tuple[list[_Pending], bool]:
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

    def _commit(self, batch: Sequence[_Pending]) -> None:
        try:
            with transaction.atomic():
                hold_fence(self._fence)
                events: dict[int, list[NewEvent]] = {}
                for pending in batch:
                    for stream_id, items in pending.write.apply().items():
                        events.setdefault(stream_id, []).extend(items)
                append_many(batches=events, fence=self._fence)
        except Exception as exc:  # boundary: handed to the waiter, who records or ends the run
            if len(batch) > 1 and not isinstance(exc, LeaseLost | OperationalError):
                for pending in batch:
                    self._commit([pending])
                return
            for pending in batch:
                _resolve(pending, exc)
        else:
            for pending in batch:
                _resolve(pending, None)


def _resolve(pending: _Pending, failure: Exception | None) -> None:
    def settle() -> None:
        if pending.done.done():
            return
        if failure is None:
            pending.done.set_result(None)
        else:
            pending.done.set_exception(failure)

    try:
        pending.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The loop ended after an interruption; there is nobody left to tell.
        return
