"""What runs a job of a kind. Handlers register on import of each app's `jobs.py`.

@job_handler("run.execute", on_unfinished=mark_run_unfinished)
def execute(ctx: JobContext) -> None: ...
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Q

from orchestrator.jobs.errors import Cancelled, LeaseLost, Retryable, Stopped, UnknownKindError
from orchestrator.jobs.fencing import Fence
from orchestrator.jobs.models import Job

__all__ = ["Handler", "JobContext", "Retryable", "handler_for", "job_handler"]


@dataclass
class JobContext:
    """What a handler knows of its attempt. Safe to use from several threads."""

    job_id: int
    spec: Mapping[str, Any]
    fence: Fence
    """Hand it to every write: `append(…, fence=ctx.fence)`, `hold_fence(ctx.fence)`."""
    stop: threading.Event
    """Set when the worker shuts down; shared by all jobs of the process."""
    lost: threading.Event = field(default_factory=threading.Event)
    """Set when the lease is lost, or could not be renewed in time."""
    cancel: threading.Event = field(default_factory=threading.Event)
    """Set by the heartbeat once it has read `cancel_requested`."""

    def cancel_requested(self) -> bool:
        return self.cancel.is_set()

    def check(self, *, is_draining: bool = False) -> None:
        """Raises LeaseLost, Cancelled or Stopped if one of them holds. Call it at every step.

        `is_draining`: the handler begins nothing new and ends within `DRAIN_S` of the stop, so the
        stop is left out.
        """
        if self.lost.is_set():
            raise LeaseLost(f"attempt {self.fence.attempt} of job {self.job_id} lost its lease")
        if self.cancel.is_set():
            raise Cancelled(f"job {self.job_id} was cancelled")
        if self.stop.is_set() and not is_draining:
            raise Stopped("the worker shuts down")

    def wait(self, seconds: float) -> None:
        """Sleeps for at most `seconds`; ends early by raising as `check` does."""
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0:
            self.check()
            self.stop.wait(min(0.1, left_s))
        self.check()

    def progress(self) -> None:
        """Says that a durable step is done: earlier crashes no longer count as attempts.

        Without it a long job that outlives many restarts would be given up after `max_attempts`.
        """
        Job.objects.filter(pk=self.job_id, attempt=self.fence.attempt, strikes__gt=1).update(
            strikes=1
        )


@dataclass(frozen=True)
class Handler:
    run: Callable[[JobContext], None]
    version: int
    """The newest meaning of `spec` that it understands; it understands all before."""
    on_unfinished: Callable[[Job], None] | None
    """Called in the transaction that ends a job as failed or cancelled: record it on the owner.

    Database writes only; it may run in any process. `job.state` and `job.error` say what happened.
    """


_handlers: dict[str, Handler] = {}


def job_handler(
    kind: str, *, version: int = 1, on_unfinished: Callable[[Job], None] | None = None
) -> Callable[[Callable[[JobContext], None]], Callable[[JobContext], None]]:
    def register(run: Callable[[JobContext], None]) -> Callable[[JobContext], None]:
        if kind in _handlers and _handlers[kind].run.__module__ != run.__module__:
            raise ValueError(f"two handlers for job kind {kind!r}")
        _handlers[kind] = Handler(run=run, version=version, on_unfinished=on_unfinished)
        return run

    return register


def handler_for(kind: str) -> Handler:
    try:
        return _handlers[kind]
    except KeyError:
        known = ", ".join(sorted(_handlers)) or "none"
        raise UnknownKindError(f"no handler for job kind {kind!r}; registered: {known}") from None


def runnable() -> Q:
    """Jobs whose kind and version this process knows: while hosts are upgraded one by one, old
    workers leave to new ones what only those understand."""
    by_version: dict[int, list[str]] = {}
    for kind, handler in _handlers.items():
        by_version.setdefault(handler.version, []).append(kind)
    known = Q(pk__in=[])
    for version, kinds in by_version.items():
        known |= Q(kind__in=kinds, version__lte=version)
    return known
