"""What ends an attempt early. The boundary in `execution` turns each into a state of the row."""

from __future__ import annotations


class JobError(Exception):
    """Base of this app's exceptions."""


class UnknownKindError(JobError, ValueError):
    """No handler is registered for the kind."""


class LeaseLost(JobError, RuntimeError):
    """Another attempt owns the job, or it has ended: stop without writing."""


class Cancelled(JobError):
    """Somebody asked for the job to be cancelled."""


class Stopped(JobError):
    """The worker shuts down: give the job back, the next worker goes on with it."""


class Retryable(JobError):
    """Raised by a handler: try again later. After `max_attempts` the job fails with this reason.

    `delay_s` before the next attempt; None doubles from 2 s to at most 60 s.
    """

    def __init__(self, reason: str, delay_s: float | None = None) -> None:
        super().__init__(reason)
        self.delay_s = delay_s

    def __reduce__(self) -> tuple[type[Retryable], tuple[str, float | None]]:
        return type(self), (str(self), self.delay_s)
