"""Edits that overwrite nobody: `ETag` on what is read, `If-Match` on what changes it.

A tag is made of the fields that can be edited, so that live counts beside them do not change it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.errors import Changed, Unguarded

PARAMETER = OpenApiParameter(
    "If-Match",
    str,
    OpenApiParameter.HEADER,
    description="The ETag of what was read; `*` overwrites whatever is there.",
    required=True,
)


def tag_of(editable: Mapping[str, Any]) -> str:
    text = json.dumps(editable, sort_keys=True, cls=DjangoJSONEncoder)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'


def tagged(
    request: Request, answer: Mapping[str, Any], editable: Mapping[str, Any], *, status: int = 200
) -> Response:
    return Response(answer, status=status, headers={"ETag": tag_of(editable)})


def require_match(request: Request, editable: Mapping[str, Any]) -> None:
    """Raises Unguarded without `If-Match`, Changed when it names something else. Call it inside the
    transaction that makes the edit.
    """
    given = request.headers.get("If-Match", "").strip()
    if not given:
        raise Unguarded
    tags = {tag.strip().removeprefix("W/") for tag in given.split(",")}
    if "*" not in tags and tag_of(editable) not in tags:
        raise Changed
