"""How much a request may send: refused before it is read, with the limit and what sets it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from django.conf import LazySettings
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.test import RequestFactory

from orchestrator.bodies import LimitBodies, refused


async def asked(path: str, chunks: list[bytes], said: int | None) -> tuple[int, bytes, int]:
    """Status and body of the answer, and how many chunks were taken."""
    taken, sent = 0, []

    async def receive() -> Mapping[str, Any]:
        nonlocal taken
        taken += 1
        more = taken < len(chunks)
        return {"type": "http.request", "body": chunks[taken - 1], "more_body": more}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})

    headers = [] if said is None else [(b"content-length", str(said).encode())]
    await LimitBodies(app)({"path": path, "headers": headers}, receive, send)
    return sent[0]["status"], sent[1]["body"], taken


@pytest.fixture(autouse=True)
def limits(settings: LazySettings) -> None:
    settings.MAX_BODY_BYTES, settings.MAX_ARCHIVE_BYTES = 2**20, 3 * 2**20


async def test_what_fits_is_passed_on() -> None:
    half = [bytes(2**19)] * 2
    assert await asked("/api/v1/projects", half, 2**20) == (200, b"fine", 2)
    assert await asked("/api/v1/projects", half, None) == (200, b"fine", 2)


async def test_what_says_that_it_is_too_long_is_not_read() -> None:
    status, body, taken = await asked("/api/v1/projects", [b"x"], 2**20 + 1)
    told = json.loads(body)
    assert (status, told["status"], taken) == (413, 413, 0)
    assert "more than 1 MiB" in told["detail"] and "SWITCHBACK_MAX_BODY_MB" in told["detail"]


async def test_what_does_not_say_is_cut_off_where_it_passes() -> None:
    status, body, taken = await asked("/p/1/imports/", [bytes(2**19)] * 9, None)
    assert (status, taken) == (413, 3)
    assert body.startswith(b"The request has more than 1 MiB")
    # One that lies of its length is counted too.
    status, _, taken = await asked("/p/1/imports/", [bytes(2**19)] * 9, 7)
    assert (status, taken) == (413, 3)


async def test_whole_projects_have_a_limit_of_their_own() -> None:
    chunks = [bytes(2**20)] * 3
    assert (await asked("/api/v1/imports", chunks, None))[0] == 200
    status, body, _ = await asked("/api/v1/imports", [*chunks, b"x"], None)
    assert status == 413
    assert b"SWITCHBACK_MAX_ARCHIVE_MB" in body


def test_a_form_that_is_too_long_is_told_so(rf: RequestFactory) -> None:
    answer = refused(rf.get("/"), RequestDataTooBig("x"))
    assert (answer.status_code, b"2.5 MiB" in answer.content) == (413, True)
    assert refused(rf.get("/"), SuspiciousOperation("x")).status_code == 400
