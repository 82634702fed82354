"""`Idempotency-Key`: a request that is sent again does its work once and gets the same answer.

    return once(request, lambda: start(…))

The key belongs to the user. The first request stores it in the transaction that does the work;
whoever comes with it meanwhile waits for that transaction, by the writer lock of SQLite or the
unique index of PostgreSQL, and gets the stored answer. A request that was refused stores nothing:
it may be mended and sent again under its key. Another request under a used key is a conflict.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from django.db import connection, transaction
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.errors import Conflict
from orchestrator.api.models import IdempotentRequest
from orchestrator.projects.audit import keeping as audit
from orchestrator.projects.models import User

HEADER = "Idempotency-Key"
KEPT = timedelta(days=7)
MOST_CHARACTERS = 200
OLD_EVERY, _OLD_AT_ONCE = 16, 400
"""Every so many requests that have a key, so many old ones are forgotten."""
P = TypeVar("P")
PARAMETER = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="Sent again with the same body, the request does nothing and is answered the same.",
)


def once(request: Request, work: Callable[[], Response]) -> Response:
    """The answer of `work`, or of the request that came before with the same key."""
    return once_prepared(request, lambda: None, lambda _: work())


def once_prepared(
    request: Request, prepare: Callable[[], P], work: Callable[[P], Response]
) -> Response:
    """As `once`. What `prepare` reads is read before anybody else has to wait for `work`."""
    key = request.headers.get(HEADER)
    if key is None:
        prepared = prepare()
        with transaction.atomic():
            answer = work(prepared)
            audit.keep(request._request, answer.status_code)
            return answer
    if not 0 < len(key) <= MOST_CHARACTERS or not all("!" <= sign <= "~" for sign in key):
        raise ValidationError(
            {HEADER: [f"accepts 1 to {MOST_CHARACTERS} printable ASCII characters, no space"]}
        )
    assert isinstance(request.user, User), "only members come this far"
    digest = _digest(request)
    try:
        prepared = prepare()
    except Exception:
        # What was there for the first request may be gone for the one that repeats it.
        if IdempotentRequest.objects.filter(user=request.user, key=key).exists():
            return _replayed(request.user, key, digest)
        raise
    with transaction.atomic():
        pk = _taken(request.user, key, digest)
        if pk is None:
            return _replayed(request.user, key, digest)
        answer = work(prepared)
        _answered(pk, answer)
        if pk % OLD_EVERY == 0:
            _forget_old()
        audit.keep(request._request, answer.status_code)
        return answer


def _taken(user: User, key: str, digest: str) -> int | None:
    """The row of a key that nobody has used. Needs a transaction.

    One statement: it waits for whoever has the key and has not committed.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {IdempotentRequest._meta.db_table}"
            " (user_id, key, digest, status, body, location, created_at)"
            " VALUES (%s, %s, %s, 0, '', '', %s) ON CONFLICT DO NOTHING RETURNING id",
            [user.pk, key, digest, connection.ops.adapt_datetimefield_value(timezone.now())],
        )
        rows = cursor.fetchall()
    return rows[0][0] if rows else None


def _answered(pk: int, answer: Response) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {IdempotentRequest._meta.db_table} SET status = %s, body = %s, location = %s"
            " WHERE id = %s",
            [
                answer.status_code,
                JSONRenderer().render(answer.data).decode(),
                answer.headers.get("Location", ""),
                pk,
            ],
        )


def _replayed(user: User, key: str, digest: str) -> Response:
    row = IdempotentRequest.objects.get(user=user, key=key)
    if row.digest != digest:
        raise Conflict(
            "This Idempotency-Key was used for another request; take a new key for a new request."
        )
    headers = {"Idempotent-Replayed": "true"}
    if row.location:
        headers["Location"] = row.location
    return Response(json.loads(row.body), status=row.status, headers=headers)


def _digest(request: Request) -> str:
    told = [request.method, request.get_full_path(), request.data]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _forget_old() -> None:
    old = connection.ops.adapt_datetimefield_value(timezone.now() - KEPT)
    table = IdempotentRequest._meta.db_table
    # Who else forgets at the moment takes others.
    alone = "FOR UPDATE SKIP LOCKED" if connection.vendor == "postgresql" else ""
    with connection.cursor() as cursor:
        cursor.execute(
            f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table}"
            f" WHERE created_at < %s ORDER BY created_at LIMIT %s {alone})",
            [old, _OLD_AT_ONCE],
        )
