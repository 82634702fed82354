"""Writes the entry of a request: with the change where the service can say what will be answered,
after the answer otherwise.
"""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.urls import ResolverMatch
from structlog.contextvars import get_contextvars

from orchestrator.inserting import insert
from orchestrator.middleware import path_to_keep
from orchestrator.projects.audit.record import Record, current
from orchestrator.projects.models import AuditEntry, User

_FORBIDDEN = 403

ASKING = frozenset({"web:rubric_preview", "web:tryout_ask", "api:ingest", "api:otlp_traces"})
"""Addresses that need the right to change and do not change the project: they look, they act in a
try-out, or they bring records in by the thousand."""


def keep(request: HttpRequest, status: int) -> None:
    """The entry of a request that has done its work, in the transaction of that work.

    If the transaction is undone after all, the request is refused, which leaves no entry.
    """
    if (record := current()) is not None:
        _write(request, record, status)


def finish(request: HttpRequest, record: Record, response: HttpResponseBase) -> None:
    """What a member was allowed to do and did, and what their role did not allow.

    A form that came back with errors changed nothing. Whatever else was granted the right to change
    has an entry, also where no difference was seen.
    """
    if not record.is_kept:
        _write(request, record, response.status_code)


def _write(request: HttpRequest, record: Record, status: int) -> None:
    if not isinstance(request.user, User):
        return
    match: ResolverMatch | None = request.resolver_match
    action = "" if match is None else match.view_name
    granted = record.project_id is not None and action not in ASKING
    if status == _FORBIDDEN:
        record.is_kept = granted
    else:
        record.is_kept = status < 400 and (granted or bool(record.changes))
    if record.is_kept:
        _keep(request, request.user, action, record, status)


def _keep(request: HttpRequest, user: User, action: str, record: Record, status: int) -> None:
    token = getattr(user, "api_token", None)
    changes = record.changes
    if record.more:
        changes = [*changes, {"kind": "", "id": "", "label": f"and {record.more} more"}]
    entry = AuditEntry(
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
    insert(entry)
