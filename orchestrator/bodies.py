"""How much a request may send, decided before any of it is read or kept.

Django's handler takes a whole body into a temporary file before a view sees the request, however
long it is. Here one that says it is too long is refused at once, and one that does not say is cut
off where it passes the limit. Views have limits of their own below this one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.views.defaults import bad_request

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
ARCHIVES = re.compile(r"/api/v1/imports/?|/p/\d+/settings/archives/import/")
"""Addresses that take a whole project."""


class _TooLong(Exception):
    pass


class LimitBodies:
    """An ASGI application around another."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit, setting = _limit(scope["path"])
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if said.isdigit() and int(said) > limit:
            await _refuse(scope, send, limit, setting)
            return
        seen = 0

        async def counted() -> Mapping[str, Any]:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _TooLong
            return message

        try:
            await self._app(scope, counted, send)
        except _TooLong:
            # The body is read before the application answers, so nothing was sent yet.
            await _refuse(scope, send, limit, setting)


def _limit(path: str) -> tuple[int, str]:
    """In bytes, and what sets it."""
    if ARCHIVES.fullmatch(path):
        return settings.MAX_ARCHIVE_BYTES, "SWITCHBACK_MAX_ARCHIVE_MB"
    return settings.MAX_BODY_BYTES, "SWITCHBACK_MAX_BODY_MB"


async def _refuse(scope: Scope, send: Send, limit: int, setting: str) -> None:
    detail = (
        f"The request has more than {limit / 2**20:,.0f} MiB, which is the limit of one request "
        f"({setting}). Send it in parts, or have the operator raise the limit."
    )
    if scope["path"].startswith("/api/"):
        kind = b"application/problem+json"
        title = {"type": "about:blank", "title": "Request Entity Too Large", "status": 413}
        body = json.dumps({**title, "detail": detail, "errors": [], "request_id": ""}).encode()
    else:
        kind, body = b"text/plain; charset=utf-8", detail.encode()
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def refused(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler400`: forms without a file have a limit of Django's, which is said as one."""
    if not isinstance(exception, RequestDataTooBig):
        return bad_request(request, exception)
    most = settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0
    return HttpResponse(
        f"The form has more than {most / 2**20:,.1f} MiB of text, which is the limit. Send a file.",
        status=413,
        content_type="text/plain; charset=utf-8",
    )
