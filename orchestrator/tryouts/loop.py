"""An event loop in a thread of its own, for a session that lives longer than one call.

Between a person's commands the connection must go on answering keepalives, while the job's thread
waits on the database. So the loop runs all the time and the job's thread hands work to it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")

WATCH_S = 0.1
_END_S = 5.0


class LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._work, name="tryout", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_S)

    def run(self, work: Coroutine[Any, Any, T], *, check: Callable[[], None]) -> T:
        """The result of the work. `check` is called while it waits; what it raises cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        try:
            while not done.wait(WATCH_S):
                check()
        except BaseException:
            _cancel(future, done)
            raise
        return future.result()

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(_all(tasks))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def _cancel(future: Future[Any], done: threading.Event) -> None:
    future.cancel()
    done.wait(_END_S)


async def _all(tasks: set[asyncio.Task[Any]]) -> None:
    if tasks:
        await asyncio.wait(tasks, timeout=_END_S)
