"""A client of a Tinker-protocol server, and waits on its futures that end."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from typing import Any

import tinker

from training.errors import DeadlineExceeded, RemoteError

SLICE_S = 0.5
"""After which a wait looks whether the job is to stop."""


def service_of(base_url: str, api_key: str) -> tinker.ServiceClient:
    """A client of a server. Raises RemoteError where it does not answer, or refuses the key."""
    # Servers of one's own check no key, and the SDK wants one of its form.
    try:
        return tinker.ServiceClient(base_url=base_url, api_key=api_key or "tml-local")
    except (tinker.TinkerError, ValueError, OSError) as error:
        raise RemoteError(f"{base_url}: {type(error).__name__}: {error}") from error


def ended(
    future: Any, what: str, timeout_s: float, *, on_wait: Callable[[], None] = lambda: None
) -> Any:
    """The result of a future of the SDK; versions to 0.24 return some things themselves.

    `on_wait` is called while it waits; what it raises ends the wait. Raises RemoteError where the
    call failed, and DeadlineExceeded.
    """
    if not hasattr(future, "result"):
        return future
    inner: Future[Any] = future.future() if hasattr(future, "future") else future
    until = time.monotonic() + timeout_s
    while not wait_for([inner], timeout=SLICE_S).done:
        on_wait()
        if time.monotonic() > until:
            raise DeadlineExceeded(f"{what}: no answer within {timeout_s:g} s")
    error = inner.exception()
    if error is not None:
        raise RemoteError(f"{what}: {type(error).__name__}: {error}") from error
    return inner.result()
