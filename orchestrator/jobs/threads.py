"""Work on the database from an event loop, in a thread that may end.

A thread has a connection of its own. One that is not closed is lost to the pool of the process when
its thread ends; after a dozen runs no job of that worker would get one any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from django.db import connection

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """`asyncio.to_thread`, and the thread's connection is given back."""

    def closing() -> T:
        try:
            return work(*args, **kwargs)
        finally:
            connection.close()

    return await asyncio.to_thread(closing)
