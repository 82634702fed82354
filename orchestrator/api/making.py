"""What most POSTs do that make something: once for each key, answered with the new address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api.idempotency import once


def made_once(
    request: Request,
    make: Callable[[], Any],
    told: Callable[[Any], Mapping[str, Any]],
    *,
    status: int = 201,
) -> Response:
    """`told` answers what `make` has made; its `url` is the `Location`."""

    def work() -> Response:
        answer = told(make())
        headers = {"Location": answer["url"]} if "url" in answer else None
        return Response(answer, status=status, headers=headers)

    return once(request, work)
