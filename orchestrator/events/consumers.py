"""`/ws/streams/<id>/`: the live feed of one stream.

Protocol, JSON text messages:

- client → server  `{"after": n}`: the last sequence that the client has, 0 for all. Sent first, and
  again to start over from another place.
- server → client  `{"events": [{"seq", "kind", "payload", "at"}, …], "head": m}`: in order, each
  event once, at most 500 a frame; `head` is the last sequence sent. The first frame answers at
  once and may be empty, so that the client knows that it is up to date.

The server pulls from the log; nothing is lost while the line is down. After a broken connection the
client connects again and sends the last sequence that it has. A client drops what it already has,
and treats a jump as a defect.

Before the socket is accepted: same origin, signed in, may view the project, not too many sockets.
A refusal is HTTP 403 to the handshake. Close codes afterwards: 4400 message not understood,
1011 the database cannot be read (connect again later).
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from contextlib import aclosing
from typing import Any
from urllib.parse import urlsplit

import structlog
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from django.core.exceptions import PermissionDenied
from django.db import Error
from django.http import Http404

from orchestrator import measures
from orchestrator.events.access import stream_for_view
from orchestrator.events.feed import hub

log = structlog.get_logger(__name__)

_open_sockets: Counter[int] = Counter()

BAD_MESSAGE = 4400
TRY_LATER = 1011


class StreamConsumer(AsyncWebsocketConsumer):
    _stream_id: int
    _user_id: int | None = None
    _pump: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        user: Any = self.scope["user"]  # put there by channels' AuthMiddleware, lazily
        reason = await self._refusal(user)
        if reason is not None:
            measures.SOCKETS_REFUSED.inc()
            log.info("socket refused", reason=reason, path=self.scope["path"])
            await self.close()
            return
        self._user_id = user.pk
        _open_sockets[user.pk] += 1
        measures.SOCKETS.inc()
        await self.accept()

    async def _refusal(self, user: Any) -> str | None:
        if not is_same_origin(self.scope["headers"]):
            return "foreign origin"
        if not user.is_authenticated:
            return "not signed in"
        if _open_sockets[user.pk] >= settings.FEED_SOCKETS_PER_USER:
            return "too many sockets of this user (SWITCHBACK_FEED_SOCKETS_PER_USER)"
        self._stream_id = int(self.scope["url_route"]["kwargs"]["stream_id"])
        try:
            await database_sync_to_async(stream_for_view)(user, self._stream_id)
        except (Http404, PermissionDenied):
            return "no such stream for this user"
        return None

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        after = parse_after(text_data)
        if after is None:
            await self.close(BAD_MESSAGE)
            return
        await self._stop_pump()
        self._pump = asyncio.create_task(self._send_frames(after))

    async def _send_frames(self, after: int) -> None:
        try:
            async with aclosing(hub().frames(self._stream_id, after)) as frames:
                async for frame in frames:
                    await self.send(text_data=frame.text)
        except Error as error:
            log.warning("feed cannot read", stream_id=self._stream_id, error=str(error))
            await self.close(TRY_LATER)

    async def disconnect(self, code: int) -> None:
        await self._stop_pump()
        if self._user_id is not None:
            _open_sockets[self._user_id] -= 1
            measures.SOCKETS.dec()
            if not _open_sockets[self._user_id]:
                del _open_sockets[self._user_id]

    async def _stop_pump(self) -> None:
        if self._pump is not None:
            self._pump.cancel()
            await asyncio.wait([self._pump])
            self._pump = None


def parse_after(text: str | None) -> int | None:
    """The sequence in a client's message; None if the message is not understood."""
    try:
        after = json.loads(text or "")["after"]
    except (ValueError, TypeError, KeyError):
        return None
    is_sequence = isinstance(after, int) and not isinstance(after, bool) and 0 <= after < 2**62
    return after if is_sequence else None


def is_same_origin(raw_headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the page that opens the socket comes from this host, or from a trusted origin.

    Cookies are sent with a socket from any page; the Origin header is what tells them apart. A
    browser always sends it.
    """
    headers = dict(raw_headers)
    origin = headers.get(b"origin", b"").decode("latin-1")
    host = headers.get(b"host", b"").decode("latin-1")
    return bool(origin) and (
        urlsplit(origin).netloc == host or origin in settings.CSRF_TRUSTED_ORIGINS
    )
