"""`Idempotency-Key`: a request that is sent again does its work once and gets the same answer.

    return once(request, lambda: start(…))
    return made_once(request, lambda: make(…), lambda made: answer_of(made))

The key belongs to the user. The first request stores it in the transaction that does the work;
whoever comes with it meanwhile waits for that transaction, by the writer lock of SQLite or the
unique index of PostgreSQL, and gets the stored answer. A request that was refused stores nothing:
it may be mended and sent again under its key. Another request under a used key is a conflict.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.errors import Conflict
from orchestrator.api.models import IdempotentRequest
from orchestrator.projects.models import User

HEADER = "Idempotency-Key"
KEPT = timedelta(days=7)
MOST_CHARACTERS = 200
_OLD_AT_ONCE = 50
PARAMETER = OpenApiParameter(
    HEADER,
    {"type": "string", "minLength": 1, "maxLength": MOST_CHARACTERS, "pattern": "^[!-~]+$"},
    OpenApiParameter.HEADER,
    description="Sent again with the same body, the request does nothing and is answered the same.",
)


def once(request: Request, work: Callable[[], Response]) -> Response:
    """The answer of `work`, or of the request that came before with the same key."""
    key = request.headers.get(HEADER)
    if key is None:
        with transaction.atomic():
            return work()
    if not 0 < len(key) <= MOST_CHARACTERS or not all("!" <= sign <= "~" for sign in key):
        raise ValidationError(
            {HEADER: [f"accepts 1 to {MOST_CHARACTERS} printable ASCII characters, no space"]}
        )
    assert isinstance(request.user, User), "only members come this far"
    digest = _digest(request)
    with transaction.atomic():
        row = _taken(request.user, key, digest)
        if row is None:
            return _replayed(request.user, key, digest)
        answer = work()
        row.status = answer.status_code
        row.body = JSONRenderer().render(answer.data).decode()
        row.location = answer.headers.get("Location", "")
        row.save(update_fields=["status", "body", "location"])
        _forget_old()
        return answer


def made_once(
    request: Request,
    make: Callable[[], Any],
    told: Callable[[Any], Mapping[str, Any]],
    *,
    status: int = 201,
) -> Response:
    """Something new, answered with its address."""

    def work() -> Response:
        answer = told(make())
        headers = {"Location": answer["url"]} if "url" in answer else None
        return Response(answer, status=status, headers=headers)

    return once(request, work)


def _taken(user: User, key: str, digest: str) -> IdempotentRequest | None:
    """The row of a key that nobody has used. Needs a transaction."""
    try:
        with transaction.atomic():
            return IdempotentRequest.objects.create(user=user, key=key, digest=digest)
    except IntegrityError:
        return None


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
    old = IdempotentRequest.objects.filter(created_at__lt=timezone.now() - KEPT).order_by("pk")
    pks = list(old.values_list("pk", flat=True)[:_OLD_AT_ONCE])
    if pks:
        IdempotentRequest.objects.filter(pk__in=pks).delete()
