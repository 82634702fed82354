"""Opens a record around every request that may change something, and keeps it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch
from django.utils.decorators import sync_and_async_middleware
from structlog.contextvars import get_contextvars

from orchestrator.middleware import path_to_keep
from orchestrator.projects.audit.record import Record, acting
from orchestrator.projects.models import AuditEntry, User

_SAFE = ("GET", "HEAD", "OPTIONS", "TRACE")
_FORBIDDEN = 403

ASKING = frozenset({"web:rubric_preview", "web:tryout_ask", "api:ingest"})
"""Addresses that need the right to change and do not change the project: they look, they act in a
try-out, or they bring records in by the thousand."""


@sync_and_async_middleware
def audit_changes(get_response: Callable[[HttpRequest], Any]) -> Callable[[HttpRequest], Any]:
    async def call(request: HttpRequest) -> HttpResponseBase:
        if request.method in _SAFE:
            answer: HttpResponseBase = await get_response(request)
            return answer
        with acting() as record:
            response: HttpResponseBase = await get_response(request)
        await sync_to_async(_finish)(request, record, response)
        return response

    def call_sync(request: HttpRequest) -> HttpResponseBase:
        if request.method in _SAFE:
            answer: HttpResponseBase = get_response(request)
            return answer
        with acting() as record:
            response: HttpResponseBase = get_response(request)
        _finish(request, record, response)
        return response

    return call if iscoroutinefunction(get_response) else call_sync


def _finish(request: HttpRequest, record: Record, response: HttpResponseBase) -> None:
    """What a member was allowed to do and did, and what their role did not allow.

    A form that came back with errors changed nothing. Whatever else was granted the right to change
    has an entry, also where no difference was seen.
    """
    if not isinstance(request.user, User):
        return
    match: ResolverMatch | None = request.resolver_match
    action = "" if match is None else match.view_name
    granted = record.project_id is not None and action not in ASKING
    if response.status_code == _FORBIDDEN:
        is_kept = granted
    else:
        is_kept = response.status_code < 400 and (granted or bool(record.changes))
    if is_kept:
        _keep(request, request.user, action, record, response.status_code)


def _keep(request: HttpRequest, user: User, action: str, record: Record, status: int) -> None:
    token = getattr(user, "api_token", None)
    changes = record.changes
    if record.more:
        changes = [*changes, {"kind": "", "id": "", "label": f"and {record.more} more"}]
    AuditEntry.objects.create(
        project_id=record.project_id,
        user=user,
        username=user.username,
        token_prefix="" if token is None else token.prefix,
        action=action[:100],
        method=request.method or "",
        path=path_to_keep(request)[:400],
        status=status,
        changes=changes,
        request_id=str(get_contextvars().get("request_id", ""))[:32],
    )
