"""How many requests a caller may send: a bucket for each token and each signed-in user.

A bucket holds a minute's worth and fills evenly. It lives in the memory of the web process: with
several processes behind one address each has its own, and the limit is theirs together.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import Any

from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

_MOST_CALLERS = 10_000


class Buckets:
    """Takes one drop for each request. Times in seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects _levels; requests run on several threads
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """What was left, and when."""

    def take(self, caller: str, per_minute: int, now: float) -> float:
        """0.0 when it may go on, else seconds until it may."""
        with self._lock:
            left, at = self._levels.pop(caller, (float(per_minute), now))
            left = min(per_minute, left + (now - at) * per_minute / 60)
            wait_s = 0.0 if left >= 1 else (1 - left) * 60 / per_minute
            self._levels[caller] = (left if wait_s else left - 1, now)
            while len(self._levels) > _MOST_CALLERS:
                self._levels.popitem(last=False)
            return wait_s


_buckets = Buckets()


class PerCaller(BaseThrottle):
    def __init__(self) -> None:
        self._wait_s = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        per_minute = settings.API_REQUESTS_PER_MINUTE
        if not per_minute:
            return True
        token = getattr(request.user, "api_token", None)
        caller = f"user-{request.user.pk}" if token is None else f"token-{token.pk}"
        self._wait_s = _buckets.take(caller, per_minute, time.monotonic())
        return self._wait_s == 0.0

    def wait(self) -> float:
        return self._wait_s
