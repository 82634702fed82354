"""Asynchronous doubles beside code that runs a loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


@contextmanager
def serving(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Runs an asynchronous double in a loop of its own, beside the run's."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def call(work: Awaitable[U]) -> U:
        async def run() -> U:
            return await work

        return asyncio.run_coroutine_threadsafe(run(), loop).result(10)

    value = call(server.__aenter__())
    try:
        yield value
    finally:
        call(server.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
