"""How many requests a caller may send: a bucket for each token and each signed-in user.

A bucket holds a minute's worth and fills evenly. All web processes of a machine take from the same
one; several machines behind one address have one each, and the limit is theirs together.
"""

from __future__ import annotations

import time
from functools import cache
from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from orchestrator.api.buckets import SharedBuckets


@cache
def _buckets() -> SharedBuckets:
    return SharedBuckets(settings.DATA_DIR / "tmp" / "api-requests")


class PerCaller(BaseThrottle):
    def __init__(self) -> None:
        self._wait_s = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        per_minute = settings.API_REQUESTS_PER_MINUTE
        if not per_minute:
            return True
        token = getattr(request.user, "api_token", None)
        caller = f"user-{request.user.pk}" if token is None else f"token-{token.pk}"
        self._wait_s = _buckets().take(caller, per_minute, time.monotonic())
        return self._wait_s == 0.0

    def wait(self) -> float:
        return self._wait_s
