"""The handler of the web process: in one thread, from the pool, with the product's answers."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import iscoroutinefunction
from django.core.signals import request_finished, request_started
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.test import override_settings
from django.urls import path
from rest_framework.request import Request

from orchestrator import serving

pytestmark = pytest.mark.django_db(transaction=True)

threads: dict[str, str] = {}
streamed: list[str] = []


def seen(name: str) -> None:
    threads[name] = threading.current_thread().name


def watch(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    assert not iscoroutinefunction(get_response)

    def call(request: HttpRequest) -> Any:
        seen("middleware")
        return get_response(request)

    return call


def plain(request: HttpRequest) -> HttpResponse:
    seen("view")
    return HttpResponse(request.body + b"!")


async def chunks() -> AsyncIterator[bytes]:
    try:
        yield b"one"
        await asyncio.Event().wait()  # until the client leaves
    finally:
        streamed.append("ended")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(chunks())


def broken(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("the view breaks")


urlpatterns = [path("plain", plain), path("stream", stream), path("broken", broken)]
here = override_settings(
    ROOT_URLCONF=__name__, MIDDLEWARE=[f"{__name__}.watch"], ALLOWED_HOSTS=["*"]
)


async def ask(
    handler: serving.Handler,
    path: str,
    *,
    method: str = "POST",
    body: bytes = b"",
    leave: asyncio.Event | None = None,
) -> list[Any]:
    sent: list[Any] = []
    coming = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        if coming:
            return coming.pop()
        await (leave or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if leave is not None and message.get("body") == b"one":
            leave.set()

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    await handler(scope, receive, send)
    return sent


@here
def test_the_whole_request_has_one_thread_of_the_pool() -> None:
    def started(**_: Any) -> None:
        seen("started")

    def finished(**_: Any) -> None:
        seen("finished")

    request_started.connect(started)
    request_finished.connect(finished)
    try:
        start, body = asyncio.run(ask(serving.Handler(), "/plain", body=b"hello"))
    finally:
        request_started.disconnect(started)
        request_finished.disconnect(finished)
    assert start["status"] == 200
    assert body["body"] == b"hello!"
    assert set(threads) == {"middleware", "view", "started", "finished"}
    assert len(set(threads.values())) == 1
    assert threads["view"].startswith("request")


@here
def test_a_stream_ends_when_its_client_leaves() -> None:
    async def run() -> list[Any]:
        return await ask(serving.Handler(), "/stream", leave=asyncio.Event())

    sent = asyncio.run(run())
    assert [message.get("body") for message in sent[1:]] == [b"one"]
    assert streamed == ["ended"]


@here
def test_a_view_that_breaks_is_an_answer() -> None:
    assert asyncio.run(ask(serving.Handler(), "/broken"))[0]["status"] == 500


def test_files_and_their_headers_come_through_the_chain() -> None:
    sent = asyncio.run(ask(serving.Handler(), "/static/css/tokens.css", method="GET"))
    headers = {name.lower(): value for name, value in sent[0]["headers"]}
    assert sent[0]["status"] == 200
    assert headers[b"content-type"].startswith(b"text/css")
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert b"--" in b"".join(message.get("body", b"") for message in sent[1:])


class Order:
    """What began, in order; each waits for its own event to end."""

    def __init__(self, turns: serving.Turns) -> None:
        self._turns = turns
        self.begun: list[str] = []

    async def take(self, name: str, until: asyncio.Event) -> None:
        async with self._turns.turn():
            self.begun.append(name)
            await until.wait()


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_requests_begin_one_after_another_in_their_order() -> None:
    async def run() -> None:
        order = Order(serving.Turns(short_s=3600))
        ends = {name: asyncio.Event() for name in "abc"}
        tasks = [asyncio.create_task(order.take(name, ends[name])) for name in "abc"]
        for n, name in enumerate("abc"):
            await settled()
            assert order.begun == list("abc")[: n + 1]
            ends[name].set()
        await asyncio.wait(tasks)

    asyncio.run(run())


def test_nobody_waits_for_a_slow_one() -> None:
    async def run() -> None:
        order = Order(serving.Turns(short_s=0.001))
        never, at_once = asyncio.Event(), asyncio.Event()
        at_once.set()
        slow = asyncio.create_task(order.take("slow", never))
        await asyncio.wait_for(order.take("quick", at_once), 60)
        assert order.begun == ["slow", "quick"]
        never.set()
        await slow
        # Having passed its turn on already, its end lets nobody in twice.
        await order.take("first", at_once)
        held = asyncio.create_task(order.take("held", asyncio.Event()))
        await settled()
        held.cancel()

    asyncio.run(run())


def test_one_that_gives_up_takes_nobodys_turn() -> None:
    async def run() -> None:
        order = Order(serving.Turns(short_s=3600))
        ends = {name: asyncio.Event() for name in "abc"}
        tasks = {name: asyncio.create_task(order.take(name, ends[name])) for name in "abc"}
        await settled()
        tasks["b"].cancel()
        await settled()
        ends["a"].set()
        await settled()
        assert order.begun == ["a", "c"]
        # Cancelled in the moment in which the turn came: it is passed on.
        late = asyncio.create_task(order.take("d", asyncio.Event()))
        after = asyncio.create_task(order.take("e", ends["a"]))
        await settled()
        ends["c"].set()
        await tasks["c"]
        late.cancel()
        await asyncio.wait_for(after, 60)
        assert order.begun[-1] == "e"

    asyncio.run(run())


@override_settings(ALLOWED_HOSTS=["*"])
@pytest.mark.parametrize(
    ("path", "statuses"),
    [("/api/v1/projects/1/runs", {"POST": 401, "GET": 401}), ("/accounts/login/", {"GET": 200})],
)
def test_what_a_request_brought_is_gone_with_its_answer(
    path: str, statuses: dict[str, int]
) -> None:
    """Without the help of the garbage collector, which comes seldom and counts no bytes."""

    def requests() -> list[Any]:
        kinds = (HttpRequest, Request)  # by type: a proxy would ask what may be gone for its class
        return [each for each in gc.get_objects() if issubclass(type(each), kinds)]

    handler = serving.Handler()
    for method in statuses:  # the first asks for what is loaded when it is needed
        asyncio.run(ask(handler, path, method=method))
    gc.collect()
    others = (
        requests()
    )  # of tests before this one; kept, so that none of ours gets the place of one
    known = {id(each) for each in others}
    gc.disable()
    try:
        for method, status in statuses.items():
            sent = asyncio.run(ask(handler, path, method=method, body=b'{"a": 1}'))
            assert sent[0]["status"] == status
            ours = [each for each in requests() if id(each) not in known]
            assert [name for each in ours for name in vars(each)] == []
    finally:
        gc.enable()
