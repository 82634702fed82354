"""Answers requests by a few threads of their own: the ASGI handler of the web process.

Django's own handler passes a request from thread to thread, twice for each middleware, and starts a
thread and opens a database connection for each request: on two cores that took longer than most
answers. Here the whole chain of middleware and the view run in one thread of a pool. On SQLite a
thread keeps its connection, on PostgreSQL it gives it back to the pool of connections.

Requests take turns: Python runs one thread at a time, and requests that run side by side take the
interpreter from each other at every statement of the database, also from the one that all others
wait for because it writes. So the next begins when the one before has ended, or after `SHORT_S`:
then that one is slow or waits for something, and nobody waits for it.

What an answer streams (server-sent events) is sent from the event loop and holds no thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

from asgiref.sync import async_to_sync, iscoroutinefunction, sync_to_async
from django.conf import settings
from django.core import signals
from django.core.exceptions import RequestAborted
from django.core.handlers.asgi import ASGIHandler, ASGIRequest, get_script_prefix
from django.db import close_old_connections, connections
from django.http import FileResponse, HttpRequest
from django.http.response import HttpResponseBase
from django.urls import set_script_prefix
from django.utils.decorators import sync_and_async_middleware
from servestatic.middleware import ServeStaticMiddleware

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]


SHORT_S = 0.05
"""Longer than nearly all requests take, shorter than a person notices."""


class Turns:
    """Who comes first begins first; one turn ends before the next begins, or lasts `SHORT_S`."""

    def __init__(self, short_s: float = SHORT_S) -> None:
        self._short_s = short_s
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        await self._take()
        ended = False

        def end() -> None:
            nonlocal ended
            if not ended:
                ended = True
                self._pass_on()

        timer = asyncio.get_running_loop().call_later(self._short_s, end)
        try:
            yield
        finally:
            timer.cancel()
            end()

    async def _take(self) -> None:
        if not self._is_taken:
            self._is_taken = True
            return
        mine = asyncio.get_running_loop().create_future()
        self._waiting.append(mine)
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():
                following.set_result(None)
                return
        self._is_taken = False


class Handler(ASGIHandler):
    def __init__(self) -> None:
        super().__init__()
        self._turns = Turns()
        pool = ThreadPoolExecutor(settings.WEB_THREADS, thread_name_prefix="request")
        self._answered = sync_to_async(self._answer, thread_sensitive=False, executor=pool)

    def load_middleware(self, is_async: bool = False) -> None:
        """As for WSGI: nothing of the chain leaves its thread."""
        super().load_middleware(is_async=False)

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await self.read_body(receive)
        except RequestAborted:
            return
        try:
            request, refusal = self.create_request(scope, body)
            if request is None or refusal is not None:
                assert refusal is not None, "one of the two is made"
                await self.send_response(refusal, send)
                return
            async with self._turns.turn():
                response = await self._answered(scope, request)
            if not response.streaming:
                await self.send_response(response, send)
                return
            try:
                await self._stream(response, receive, send)
            finally:
                await sync_to_async(response.close)()
        finally:
            body.close()

    def _answer(self, scope: Scope, request: ASGIRequest) -> HttpResponseBase:
        set_script_prefix(get_script_prefix(scope))
        signals.request_started.send(sender=self.__class__, scope=scope)
        response = self.get_response(request)
        response._handler_class = self.__class__  # type: ignore[attr-defined] # who tells its end
        if isinstance(response, FileResponse):
            response.block_size = self.chunk_size
        for connection in connections.all(initialized_only=True):
            if connection.vendor == "sqlite":
                connection.close_at = 0.0 if connection.errors_occurred else None
        if response.streaming:
            close_old_connections()
        else:
            response.close()  # what is left to do needs this thread's connections
            # Middleware ties requests into circles, which would keep their bodies until the garbage
            # collector comes by.
            vars(request).clear()
        return response

    async def _stream(self, response: HttpResponseBase, receive: Receive, send: Send) -> None:
        """Until all is sent or the client has left."""
        sending = asyncio.create_task(self.send_response(response, send))
        leaving = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait([sending, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                if not task.done():
                    task.cancel()
            for task in (leaving, sending):
                with suppress(asyncio.CancelledError, RequestAborted):
                    await task


@sync_and_async_middleware
def static_files(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    """ServeStatic, which is for asynchronous chains alone, asked only for its own addresses."""
    if iscoroutinefunction(get_response):
        served: Callable[[HttpRequest], Any] = ServeStaticMiddleware(get_response)
        return served
    ask = async_to_sync(ServeStaticMiddleware(sync_to_async(get_response)))

    def call(request: HttpRequest) -> HttpResponseBase:
        if request.path_info.startswith(settings.STATIC_URL):
            file: HttpResponseBase = ask(request)
            return file
        response: HttpResponseBase = get_response(request)
        return response

    return call
