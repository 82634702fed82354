"""One log line per request, and a request id that every line logged meanwhile carries.

The id is ours, or the one that a proxy in front gave in `X-Request-ID`. It is in the answer, in a
problem's body, in what the request's jobs log later, and in its trace.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import structlog
from asgiref.sync import iscoroutinefunction
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware
from structlog.contextvars import bound_contextvars

from orchestrator import measures, tracing

log = structlog.get_logger(__name__)

# Polled by the supervisor, by load balancers and monitors: not worth a line each.
_QUIET_PATHS = ("/static/", "/healthz", "/readyz", "/metrics")
_GIVEN_ID = re.compile(r"[A-Za-z0-9._:-]{8,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@sync_and_async_middleware
def log_request(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    async def call(request: HttpRequest) -> HttpResponseBase:
        started_s, request_id = time.monotonic(), id_of(request)
        with bound_contextvars(request_id=request_id), _span_of(request, request_id) as span:
            response: HttpResponseBase = await get_response(request)
            _finish(request, response, span, request_id=request_id, started_s=started_s)
        return response

    def call_sync(request: HttpRequest) -> HttpResponseBase:
        started_s, request_id = time.monotonic(), id_of(request)
        with bound_contextvars(request_id=request_id), _span_of(request, request_id) as span:
            response: HttpResponseBase = get_response(request)
            _finish(request, response, span, request_id=request_id, started_s=started_s)
        return response

    return call if iscoroutinefunction(get_response) else call_sync


def id_of(request: HttpRequest) -> str:
    """Whatever else stands in the header is a stranger's text, and no id."""
    given = request.headers.get("X-Request-ID", "")
    return given if _GIVEN_ID.fullmatch(given) else uuid.uuid4().hex[:16]


def path_to_keep(request: HttpRequest) -> str:
    """The path for logs: a secret in it (an invitation's link) is left out."""
    match = request.resolver_match
    secret = match.kwargs.get("secret") if match is not None else None
    return request.path.replace(secret, "…") if secret else request.path


def _route_of(request: HttpRequest) -> str:
    """The address as the URL table has it: without ids, so that spans of one view have one name."""
    match = request.resolver_match
    return f"/{match.route}" if match is not None else "unknown"


def _span_of(request: HttpRequest, request_id: str) -> AbstractContextManager[tracing.Span]:
    if request.path.startswith(_QUIET_PATHS):
        return nullcontext(tracing.Span())
    told = {"http.request.method": request.method or "", "switchback.request_id": request_id}
    parent = request.headers.get("traceparent")
    return tracing.span("request", told, parent=parent, role="server")


def _finish(
    request: HttpRequest,
    response: HttpResponseBase,
    span: tracing.Span,
    *,
    request_id: str,
    started_s: float,
) -> None:
    response.headers["X-Request-ID"] = request_id
    if request.path.startswith(_QUIET_PATHS):
        return
    took_s = time.monotonic() - started_s
    area = "api" if request.path.startswith("/api/") else "pages"
    method = request.method if request.method in _METHODS else "other"
    measures.HTTP_REQUESTS.labels(area, method, str(response.status_code)).inc()
    measures.HTTP_SECONDS.labels(area).observe(took_s)
    span.rename(f"{request.method} {_route_of(request)}")
    span.set({"http.response.status_code": response.status_code, "url.path": path_to_keep(request)})
    if response.status_code >= 500:
        span.fail(str(response.status_code))
    log.info(
        "request",
        method=request.method,
        path=path_to_keep(request),
        status=response.status_code,
        duration_ms=round(took_s * 1000, 1),
    )
