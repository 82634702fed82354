"""A web process that is told to stop while it is behind a proxy.

At first it goes on answering, says 503 on `/readyz`, and ends each connection with its answer: the
proxy sends what comes next to others. Then it closes its socket and ends.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Any], Awaitable[None]]

DRAINING = threading.Event()
"""Set once this process should get no new work."""
_UNREADY = b'{"status": "stopping"}'


class EndConnections:
    """ASGI: while it drains, no connection is kept for a second request."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Any
    ) -> None:
        if scope["type"] != "http" or not DRAINING.is_set():
            await self._app(scope, receive, send)
            return

        async def ending(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        if scope["path"] == "/readyz":
            headers = [(b"content-type", b"application/json"), (b"retry-after", b"1")]
            await ending({"type": "http.response.start", "status": 503, "headers": headers})
            await ending({"type": "http.response.body", "body": _UNREADY})
            return
        await self._app(scope, receive, ending)


class Drain:
    """From the first signal until the process may close its socket."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._ends_at: float | None = None

    def begins(self) -> bool:
        """False where it has begun already, or takes no time: then the process ends now."""
        if DRAINING.is_set() or not self._seconds:
            return False
        DRAINING.set()
        return True

    def is_over(self) -> bool:
        """Asked again and again, from the event loop."""
        if not DRAINING.is_set():
            return False
        now = asyncio.get_running_loop().time()
        if self._ends_at is None:
            self._ends_at = now + self._seconds
        return now >= self._ends_at
