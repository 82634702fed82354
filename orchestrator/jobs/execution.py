"""Runs one attempt: claim, handler under a heartbeat, and the boundary that records its end."""

from __future__ import annotations

import threading

import structlog
from django.db import connections
from structlog.contextvars import bound_contextvars

from orchestrator.jobs import lease
from orchestrator.jobs.errors import Cancelled, LeaseLost, Retryable, Stopped
from orchestrator.jobs.heartbeat import Heartbeat
from orchestrator.jobs.registry import JobContext, handler_for

log = structlog.get_logger(__name__)

STOPPING = threading.Event()
"""Set once the worker process begins to shut down."""


def run_attempt(job_id: int) -> None:
    """Safe to call for any job at any time: it returns quietly when there is nothing to do."""
    if STOPPING.is_set():
        return  # the row still says `queued`; the next worker is told by the sweep
    try:
        claimed = lease.claim(job_id)
        if claimed is not None:
            with bound_contextvars(job_id=job_id, attempt=claimed.fence.attempt):
                _run(claimed)
    finally:
        _close_connections()


def _run(claimed: lease.Claim) -> None:
    ctx = JobContext(
        job_id=claimed.job.pk, spec=claimed.job.spec, fence=claimed.fence, stop=STOPPING
    )
    log.info("job started", kind=claimed.job.kind)
    try:
        with Heartbeat(ctx):
            handler_for(claimed.job.kind).run(ctx)
    except LeaseLost:
        log.warning("job lost its lease")
    except Cancelled:
        _record("cancelled", lease.cancelled(claimed.fence))
    except Stopped:
        _record("given back", lease.release(claimed.fence))
    except Retryable as error:
        log.warning("job will be tried again", reason=str(error))
        _record("retry", lease.retry(claimed.fence, error=str(error), delay_s=error.delay_s))
    except Exception as error:
        # The boundary around every handler: an error ends the job once, with its reason.
        log.exception("job failed")
        reason = f"{type(error).__name__}: {error}"
        _record("failed", lease.fail(claimed.fence, error=reason))
    else:
        _record("done", lease.finish(claimed.fence))


def _record(outcome: str, is_recorded: bool) -> None:
    if is_recorded:
        log.info("job ended", outcome=outcome)
    else:
        log.warning("job ended after it had lost its lease; nothing recorded", outcome=outcome)


def _close_connections() -> None:
    """Threads of a worker's pool live long; a connection is opened for each job instead."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:  # a caller's transaction is not ours to end
            connection.close()
