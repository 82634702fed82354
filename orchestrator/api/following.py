"""Events of long work: as pages of JSON, or as they come (`Accept: text/event-stream`).

Server-sent events carry the sequence as their id. A client whose line breaks connects again with
`Last-Event-ID` and misses nothing. The answer ends once the work has ended and all was sent.
"""

from __future__ import annotations

import asyncio
import datetime
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Annotated, Any, TypedDict

from channels.db import database_sync_to_async
from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.http import HttpResponseBase, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import Throttled, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.base import actor_of
from orchestrator.api.shapes import schema_of
from orchestrator.events.feed import hub
from orchestrator.events.frames import Frame
from orchestrator.events.models import Stream
from orchestrator.events.queries import events_after

SSE = "text/event-stream"
QUIET_S = 15.0
"""After so long without an event a comment is sent, so that nothing on the way hangs up."""
MOST = 500
LOOK_S = 1.0
"""How often work without a log is looked at while somebody follows it."""
STATE = "state"
TRYOUT_ENDS = ("tryout.ended", "tryout.lost")
ENDED = frozenset({"completed", "completed_unscored", "failed", "cancelled"})
"""States that nothing follows: see docs/reference/events.md."""
_open: Counter[int] = Counter()


class EventAnswer(TypedDict):
    seq: Annotated[int, "Rises by one from event to event."]
    kind: str
    payload: dict[str, Any]
    at: datetime.datetime


class EventsAnswer(TypedDict):
    events: list[EventAnswer]
    head: Annotated[int, "Sequence of the last one here; send it as `after` to go on."]
    has_ended: Annotated[bool, "Whether the work has ended, so that no more will come."]
    html_url: str


PARAMETERS = [
    OpenApiParameter(
        "after",
        {"type": "integer", "minimum": 0, "maximum": 10**15 - 1, "default": 0},
        description="The last sequence that the client has.",
    ),
]


def documented(method: Any) -> Any:
    return extend_schema(
        parameters=PARAMETERS,
        responses={
            (200, "application/json"): OpenApiResponse(
                schema_of(EventsAnswer), description=f"At most {MOST}, in order."
            ),
            (200, SSE): OpenApiResponse(
                {"type": "string"}, description="With `Accept: text/event-stream`, as they come."
            ),
        },
    )(method)


def events_answer(
    request: Request, stream: Stream, *, has_ended: bool, html_url: str
) -> HttpResponseBase:
    after = _after(request)
    if SSE in request.headers.get("Accept", ""):
        return _stream(request, lambda user_id: _told(stream.pk, after, user_id, has_ended))
    events = events_after(stream.pk, after, MOST)
    answer: EventsAnswer = {
        "events": [
            {"seq": event.seq, "kind": event.kind, "payload": event.payload, "at": event.at}
            for event in events
        ],
        "head": events[-1].seq if events else after,
        "has_ended": has_ended,
        "html_url": html_url,
    }
    return Response(answer)


def _stream(
    request: Request, frames: Callable[[int], AsyncGenerator[bytes, None]]
) -> HttpResponseBase:
    user_id = actor_of(request).pk
    if _open[user_id] >= settings.FEED_SOCKETS_PER_USER:
        raise Throttled(
            detail=f"{settings.FEED_SOCKETS_PER_USER} streams are open already "
            "(SWITCHBACK_FEED_SOCKETS_PER_USER)."
        )
    return StreamingHttpResponse(
        frames(user_id),
        content_type=f"{SSE}; charset=utf-8",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


def states_answer(request: Request, look: Callable[[], Mapping[str, Any]]) -> HttpResponseBase:
    """Events of kind `state` with the whole object, for work that keeps no log: as JSON the present
    one, as server-sent events a new one whenever it has changed. `look` reads the object; it has
    `has_ended` and `html_url`.
    """
    after = _after(request)
    now = look()
    if SSE in request.headers.get("Accept", ""):
        return _stream(request, lambda user_id: _changes(look, after, user_id))
    answer: EventsAnswer = {
        "events": [{"seq": after + 1, "kind": STATE, "payload": dict(now), "at": timezone.now()}],
        "head": after + 1,
        "has_ended": bool(now["has_ended"]),
        "html_url": str(now["html_url"]),
    }
    return Response(answer)


async def _changes(
    look: Callable[[], Mapping[str, Any]], after: int, user_id: int
) -> AsyncGenerator[bytes, None]:
    read = database_sync_to_async(look)
    known, seq, quiet_s = "", after, 0.0
    with _counted(user_id):
        while True:
            now = await read()
            text = json.dumps(now, cls=DjangoJSONEncoder)
            if text != known:
                known, seq, quiet_s = text, seq + 1, 0.0
                at = timezone.now().isoformat()
                event = f'{{"seq": {seq}, "kind": "{STATE}", "payload": {text}, "at": "{at}"}}'
                yield f"id: {seq}\nevent: {STATE}\ndata: {event}\n\n".encode()
            if now["has_ended"]:
                return
            await asyncio.sleep(LOOK_S)
            quiet_s += LOOK_S
            if quiet_s >= QUIET_S:
                quiet_s = 0.0
                yield b": waiting\n\n"


@contextmanager
def _counted(user_id: int) -> Iterator[None]:
    _open[user_id] += 1
    try:
        yield
    finally:
        _open[user_id] -= 1
        if not _open[user_id]:
            del _open[user_id]


async def _told(
    stream_id: int, after: int, user_id: int, has_ended: bool
) -> AsyncGenerator[bytes, None]:
    with _counted(user_id):
        async with aclosing(hub().frames(stream_id, after)) as frames:
            async for chunk in paced(frames, lambda frame: has_ended and not frame.is_full):
                yield chunk


async def paced(
    frames: AsyncGenerator[Frame, None], is_end: Callable[[Frame], bool]
) -> AsyncGenerator[bytes, None]:
    """The frames as server-sent events, with a comment whenever they are long in coming."""
    coming = asyncio.ensure_future(anext(frames))
    try:
        while True:
            done, _ = await asyncio.wait([coming], timeout=QUIET_S)
            if not done:
                yield b": waiting\n\n"
                continue
            frame = coming.result()
            chunk, is_last = encoded(frame)
            if chunk:
                yield chunk
            if is_last or is_end(frame):
                return
            coming = asyncio.ensure_future(anext(frames))
    finally:
        if not coming.done():
            coming.cancel()
            await asyncio.wait([coming])


def encoded(frame: Frame) -> tuple[bytes, bool]:
    """As sent, and whether the last of its events is one that nothing follows."""
    events = json.loads(frame.text)["events"]
    lines = [
        f"id: {event['seq']}\nevent: {event['kind']}\ndata: {json.dumps(event)}\n\n"
        for event in events
    ]
    return "".join(lines).encode(), any(is_last(event) for event in events)


def is_last(event: Any) -> bool:
    """Whether it tells that the work has ended."""
    kind = str(event["kind"])
    if kind.endswith(".state"):
        return event["payload"].get("state") in ENDED
    return kind in ("run.ended", "rollout.ended", "regrade.ended", "gate.ended", *TRYOUT_ENDS)


def _after(request: Request) -> int:
    """Where the client is; a browser that connects again says so by itself."""
    text = request.headers.get("Last-Event-ID") or request.query_params.get("after", "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 16):
        raise ValidationError({"after": ["accepts a whole number from 0 up"]})
    return int(text)
