"""Lists in pages by keyset: a page costs the same wherever it is, and nothing is shown twice.

The cursor is opaque: the key of the last row seen, encoded. Rows that appear meanwhile are on the
side of the list that was read already.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.utils.urls import replace_query_param

M = TypeVar("M", bound=Model)

USUAL = 50
MOST = 200
_BIGGEST = 2**63 - 1
PARAMETERS = [
    OpenApiParameter(
        "limit",
        {"type": "integer", "minimum": 1, "maximum": MOST, "default": USUAL},
        description="Items in one page.",
    ),
    OpenApiParameter("cursor", str, description="From the answer before; empty for the start."),
]


def limit_of(request: Request, *, most: int = MOST) -> int:
    text = request.query_params.get("limit", str(USUAL))
    limit = int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
    if not 1 <= limit <= most:
        raise ValidationError({"limit": [f"accepts a whole number from 1 to {most}"]})
    return limit


def cursor_of(request: Request) -> int | None:
    """The key of the last row seen; None at the start."""
    text = request.query_params.get("cursor", "")
    if not text:
        return None
    try:
        key = base64.urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4)).decode()
        number = int(key.removeprefix("after:"))
    except (ValueError, binascii.Error):
        number = -1
    if not 0 <= number <= _BIGGEST or encoded(number) != text:
        raise ValidationError({"cursor": ["is none of ours; take `cursor` of the answer before"]})
    return number


def encoded(key: int) -> str:
    return base64.urlsafe_b64encode(f"after:{key}".encode()).decode().rstrip("=")


def paged(
    request: Request,
    query: QuerySet[M],
    told: Callable[[list[M]], list[Any]],
    *,
    html_url: str,
    newest_first: bool = True,
) -> dict[str, Any]:
    """One page of the query by primary key. `told` makes answers of its rows, all at once."""
    limit, after = limit_of(request), cursor_of(request)
    if after is not None:
        query = query.filter(pk__lt=after) if newest_first else query.filter(pk__gt=after)
    rows = list(query.order_by("-pk" if newest_first else "pk")[: limit + 1])
    more, rows = len(rows) > limit, rows[:limit]
    cursor = encoded(rows[-1].pk) if more else None
    return {"items": told(rows), **links(request, cursor), "html_url": html_url}


def links(request: Request, cursor: str | None) -> dict[str, str | None]:
    here = request.build_absolute_uri()
    return {
        "next": None if cursor is None else replace_query_param(here, "cursor", cursor),
        "cursor": cursor,
    }
