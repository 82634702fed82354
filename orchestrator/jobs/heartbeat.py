"""Renews the lease of one attempt from its own thread and its own connection.

A database fault is retried until the lease would have ended; then the job is told that it is lost,
since another worker may run it by now.
"""

from __future__ import annotations

import threading
import time

import structlog
from django.conf import settings
from django.db import Error, connection

from orchestrator.jobs.lease import beat
from orchestrator.jobs.registry import JobContext

log = structlog.get_logger(__name__)


class Heartbeat:
    """`with Heartbeat(ctx): …` beats until the block ends."""

    def __init__(self, ctx: JobContext) -> None:
        self._ctx = ctx
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"beat-{ctx.job_id}", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        # A beat may be waiting for the write lock; it is harmless afterwards, so do not wait long.
        self._thread.join(timeout=settings.JOB_BEAT_S)

    def _run(self) -> None:
        renewed_s = time.monotonic()
        try:
            while not self._done.wait(settings.JOB_BEAT_S):
                begun_s = time.monotonic()
                try:
                    answer = beat(self._ctx.fence)
                except Error as error:
                    connection.close()
                    log.warning("heartbeat failed", job_id=self._ctx.job_id, error=str(error))
                    if time.monotonic() - renewed_s > settings.JOB_LEASE_S:
                        self._ctx.lost.set()
                        return
                    continue
                if answer is None:
                    if not self._done.is_set():
                        self._ctx.lost.set()
                    return
                renewed_s = begun_s
                if answer:
                    self._ctx.cancel.set()
        finally:
            connection.close()
