"""Runs one attempt: claim, handler under a heartbeat, and the boundary that records its end."""

from __future__ import annotations

import threading
import time

import structlog
from django.db import connections
from structlog.contextvars import bound_contextvars

from orchestrator import measures, tracing
from orchestrator.jobs import lease
from orchestrator.jobs.errors import Cancelled, LeaseLost, Retryable, Stopped
from orchestrator.jobs.heartbeat import Heartbeat
from orchestrator.jobs.registry import JobContext, handler_for
from orchestrator.jobs.surroundings import fault_of_surroundings, reason_of

log = structlog.get_logger(__name__)

STOPPING = threading.Event()
"""Set once the worker process begins to shut down."""


def run_attempt(job_id: int) -> None:
    """Safe to call for any job at any time: it returns quietly when there is nothing to do."""
    if STOPPING.is_set():
        try:
            lease.let_be_announced(job_id)  # its message is gone with this call
        finally:
            _close_connections()
        return
    try:
        claimed = lease.claim(job_id)
        if claimed is not None:
            origin = claimed.job.origin
            asked = {"request_id": origin["request_id"]} if "request_id" in origin else {}
            with bound_contextvars(job_id=job_id, attempt=claimed.fence.attempt, **asked):
                _run(claimed)
    finally:
        _close_connections()


def _run(claimed: lease.Claim) -> None:
    job = claimed.job
    ctx = JobContext(job_id=job.pk, spec=job.spec, fence=claimed.fence, stop=STOPPING)
    log.info("job started", kind=job.kind)
    measures.JOBS_STARTED.labels(job.kind).inc()
    if claimed.fence.attempt == 1 and job.not_before is None and job.started_at is not None:
        waited = job.started_at - job.created_at
        measures.JOB_WAIT_SECONDS.observe(max(0.0, waited.total_seconds()))
    began_s = time.monotonic()
    told: tracing.Attributes = {
        "job.id": job.pk,
        "job.attempt": claimed.fence.attempt,
        "job.queue": job.queue,
    }
    parent = job.origin.get("traceparent")
    with tracing.span(f"job {job.kind}", told, parent=parent, role="consumer") as span:
        outcome, is_recorded = _attempted(ctx, job.kind)
        span.set({"job.outcome": outcome})
        if outcome == "failed" or not is_recorded:
            span.fail(outcome)
    if is_recorded:
        log.info("job ended", kind=job.kind, outcome=outcome)
    else:
        log.warning("job ended after it had lost its lease; nothing recorded", outcome=outcome)
        measures.LEASES_LOST.inc()
        outcome = "lease lost"
    measures.JOBS_ENDED.labels(job.kind, outcome).inc()
    measures.JOB_SECONDS.labels(job.kind).observe(time.monotonic() - began_s)


def _attempted(ctx: JobContext, kind: str) -> tuple[str, bool]:
    """What came of it, and whether that stands in the row."""
    try:
        with Heartbeat(ctx):
            handler_for(kind).run(ctx)
    except LeaseLost:
        return "lease lost", False
    except Cancelled:
        return "cancelled", lease.cancelled(ctx.fence)
    except Stopped:
        return "given back", lease.release(ctx.fence)
    except Retryable as error:
        log.warning("job will be tried again", reason=str(error))
        return "retry", lease.retry(ctx.fence, error=str(error), delay_s=error.delay_s)
    except Exception as error:
        # The boundary around every handler: an error ends the job once, with its reason.
        if (passing := fault_of_surroundings(error)) is not None:
            reason = reason_of(passing)
            log.warning("job will be tried again", reason=reason)
            return "retry", lease.retry(ctx.fence, error=reason, delay_s=None)
        log.exception("job failed")
        return "failed", lease.fail(ctx.fence, error=reason_of(error))
    return "done", lease.finish(ctx.fence)


def _close_connections() -> None:
    """Threads of a worker's pool live long; a connection is opened for each job instead."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:  # a caller's transaction is not ours to end
            connection.close()
