"""Waiting for a condition with a limit, instead of sleeping for a guess."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE_S = 60.0
"""Of every wait at least: how long something takes is for benchmarks, and a machine may be busy."""


def wait_until(
    condition: Callable[[], T], *, limit_s: float, what: str, pause_s: float = 0.05
) -> T:
    """The first true value of `condition`; AssertionError naming `what` after `limit_s`, or after
    PATIENCE_S if that is longer.
    """
    limit_s = max(limit_s, PATIENCE_S)
    deadline_s = time.monotonic() + limit_s
    while not (value := condition()):
        if time.monotonic() > deadline_s:
            raise AssertionError(f"waited {limit_s} s in vain for: {what}")
        time.sleep(pause_s)
    return value
