"""Opens a record around every request that may change something, and keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils.decorators import sync_and_async_middleware

from orchestrator.projects.audit import keeping
from orchestrator.projects.audit.record import acting

_SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")


@sync_and_async_middleware
def audit_changes(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    async def call(request: HttpRequest) -> HttpResponseBase:
        if request.method in _SAFE:
            answer: HttpResponseBase = await get_response(request)
            return answer
        with acting() as record:
            response: HttpResponseBase = await get_response(request)
        await sync_to_async(keeping.finish)(request, record, response)
        return response

    def call_sync(request: HttpRequest) -> HttpResponseBase:
        if request.method in _SAFE:
            answer: HttpResponseBase = get_response(request)
            return answer
        with acting() as record:
            response: HttpResponseBase = get_response(request)
        keeping.finish(request, record, response)
        return response

    return call if iscoroutinefunction(get_response) else call_sync
