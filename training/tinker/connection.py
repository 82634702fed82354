"""A client of a Tinker-protocol server, and waits on its futures that end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from concurrent.futures import wait as wait_for
from typing import Any

import tinker

from training.errors import DeadlineExceeded, RemoteError

SLICE_S = 0.5
"""After which a wait looks whether the job is to stop."""
CONNECT_S = 60.0
FINISH_S = 5.0
"""A server that is away must not hold up what is over."""


def service_of(
    base_url: str,
    api_key: str,
    *,
    timeout_s: float = CONNECT_S,
    on_wait: Callable[[], None] = lambda: None,
) -> tinker.ServiceClient:
    """A client of a server, with its session begun.

    The SDK begins one in the first call that needs it, which then waits without an end: hence a
    thread. Raises RemoteError where the server refuses, DeadlineExceeded, and what `on_wait`
    raises.
    """
    begun: Future[tinker.ServiceClient] = Future()

    def begin() -> None:
        try:
            # Servers of one's own check no key, and the SDK wants one of its form.
            service = tinker.ServiceClient(base_url=base_url, api_key=api_key or "tml-local")
            _ = service.holder
        except Exception as error:  # whatever it is, the waiting thread raises it
            begun.set_exception(error)
        else:
            begun.set_result(service)

    threading.Thread(target=begin, name="tinker-connect", daemon=True).start()
    connected: tinker.ServiceClient = ended(
        begun, f"{base_url}: connect", timeout_s, on_wait=on_wait
    )
    return connected


def finish(service: tinker.ServiceClient) -> None:
    """Ends its session on the server; what was saved there stays."""
    close = getattr(service, "close", None)  # since 0.30 or so
    if close is not None:
        with contextlib.suppress(tinker.TinkerError, FutureTimeout):
            close("success").result(FINISH_S)


def ended(
    future: Any, what: str, timeout_s: float, *, on_wait: Callable[[], None] = lambda: None
) -> Any:
    """The result of a future of the SDK; versions to 0.24 return some things themselves.

    `on_wait` is called while it waits; what it raises ends the wait. Raises RemoteError where the
    call failed, and DeadlineExceeded.
    """
    if not hasattr(future, "result"):
        return future
    inner: Future[Any] = future if type(future) is Future else future.future()
    until = time.monotonic() + timeout_s
    while not wait_for([inner], timeout=SLICE_S).done:
        on_wait()
        if time.monotonic() > until:
            raise DeadlineExceeded(f"{what}: no answer within {timeout_s:g} s")
    error = inner.exception()
    if error is not None:
        raise RemoteError(f"{what}: {type(error).__name__}: {error}") from error
    return inner.result()
