"""One log line per request, and a request id that every line logged meanwhile carries."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from structlog.contextvars import bound_contextvars

log = structlog.get_logger(__name__)

# Polled by the supervisor and by load balancers: not worth a line each.
_QUIET_PATHS = ("/static/", "/healthz")


@sync_and_async_middleware
def log_request(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    async def call(request: HttpRequest) -> HttpResponseBase:
        started_s, request_id = time.monotonic(), uuid.uuid4().hex[:16]
        with bound_contextvars(request_id=request_id):
            response: HttpResponseBase = await get_response(request)
            _finish(request, response, request_id=request_id, started_s=started_s)
        return response

    def call_sync(request: HttpRequest) -> HttpResponseBase:
        started_s, request_id = time.monotonic(), uuid.uuid4().hex[:16]
        with bound_contextvars(request_id=request_id):
            response: HttpResponseBase = get_response(request)
            _finish(request, response, request_id=request_id, started_s=started_s)
        return response

    return call if iscoroutinefunction(get_response) else call_sync


def path_to_keep(request: HttpRequest) -> str:
    """The path for logs: a secret in it (an invitation's link) is left out."""
    match = request.resolver_match
    secret = match.kwargs.get("secret") if match is not None else None
    return request.path.replace(secret, "…") if secret else request.path


def _finish(
    request: HttpRequest, response: HttpResponseBase, *, request_id: str, started_s: float
) -> None:
    response.headers["X-Request-ID"] = request_id
    if request.path.startswith(_QUIET_PATHS):
        return
    log.info(
        "request",
        method=request.method,
        path=path_to_keep(request),
        status=response.status_code,
        duration_ms=round((time.monotonic() - started_s) * 1000, 1),
    )
