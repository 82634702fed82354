"""How much ingest a web process takes on at once: more than that is told to come again later.

Three measures, each with a setting: requests that are being stored, their bytes (what a body takes
in memory is a multiple of it), and events that still wait for the full-text index, which all
processes share. Who is turned away has lost nothing: nothing of the request was read. A single
large request always finds room when there is no other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from django.conf import settings
from rest_framework.exceptions import APIException
from rest_framework.request import Request

from orchestrator import measures
from orchestrator.events.indexing import waiting

RETRY_S, INDEX_RETRY_S = 1, 5
_UNKNOWN_BYTES = 2**20
"""Counted for a body that does not say how long it is."""


class Busy(APIException):
    status_code = 429

    def __init__(self, detail: str, wait_s: int) -> None:
        super().__init__(detail)
        measures.INGEST_TURNED_AWAY.inc()
        self.wait = wait_s
        """Seconds; told as `Retry-After`."""


class Room:
    """Of one process. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects both counters; requests run on several threads
        self.n_requests = 0
        self.n_bytes = 0

    @contextmanager
    def taken(
        self, n_bytes: int, *, requests: int, most_bytes: int
    ) -> Iterator[Callable[[int], None]]:
        """Gives what is to be called with the real number of bytes. Raises Busy at once."""
        with self._lock:
            is_full = self.n_requests and (
                self.n_requests >= requests or self.n_bytes + n_bytes > most_bytes
            )
            if is_full:
                raise Busy(
                    f"{self.n_requests} requests with {self.n_bytes:,} bytes are being stored; at"
                    f" most {requests} (SWITCHBACK_INGEST_REQUESTS) with {most_bytes:,}"
                    " (SWITCHBACK_INGEST_BYTES) are taken at once. Nothing was stored: send it"
                    " again.",
                    RETRY_S,
                )
            self.n_requests += 1
            self.n_bytes += n_bytes
        own = n_bytes

        def counted(real: int) -> None:
            nonlocal own
            with self._lock:
                self.n_bytes += real - own
            own = real

        try:
            yield counted
        finally:
            with self._lock:
                self.n_requests -= 1
                self.n_bytes -= own


_room = Room()


@contextmanager
def admitted(request: Request) -> Iterator[Callable[[int], None]]:
    """Around reading and storing; gives what is to be told how long the opened body is.

    Raises Busy.
    """
    if (most := settings.INGEST_BACKLOG) and (n := waiting()) > most:
        raise Busy(
            f"{n:,} events wait for the full-text index; at most {most:,}"
            " (SWITCHBACK_INGEST_BACKLOG). Nothing was stored: send it again.",
            INDEX_RETRY_S,
        )
    length = request.headers.get("Content-Length", "")
    n_bytes = int(length) if length.isdecimal() and len(length) < 16 else _UNKNOWN_BYTES
    with _room.taken(
        n_bytes, requests=settings.INGEST_REQUESTS, most_bytes=settings.INGEST_BYTES
    ) as counted:
        yield counted
