"""The periodic round: announces again what should run and does not. One at a time per database.

Under `STACK=embedded` the supervisor's lock on the data folder makes it one; on PostgreSQL an
advisory lock does, held for one round, so any number of hosts may offer to sweep.
"""

from __future__ import annotations

import threading
from typing import Any

import structlog
from django.conf import settings
from django.db import Error, connection

from orchestrator import measures
from orchestrator.events.indexing import ask_again
from orchestrator.jobs.services import end_leases_of_dead_workers, sweep
from orchestrator.keeping.services import look_after

log = structlog.get_logger(__name__)

# Any constant; it only has to differ from other advisory locks in the same database.
_LOCK = 7_248_011


def sweep_round(*, is_first: bool = False) -> int:
    """One sweep, or 0 at once if another process is sweeping."""
    if connection.vendor != "postgresql":
        end_leases_of_dead_workers()
        ask_again()
        look_after()
        return sweep(is_first=is_first)
    if not _ask("SELECT pg_try_advisory_lock(%s)"):
        return 0
    try:
        ask_again()
        look_after()
        return sweep(is_first=is_first)
    finally:
        _ask("SELECT pg_advisory_unlock(%s)")


def sweep_until(stop: threading.Event) -> None:
    """Sweeps every `JOB_SWEEP_S`, whatever goes wrong in a round."""
    is_first = True
    while not stop.is_set():
        try:
            measures.SWEEP_ANNOUNCED.inc(sweep_round(is_first=is_first))
            measures.SWEPT_AT.set_to_current_time()
            is_first = False
        except Error as error:
            measures.SWEEP_FAILED.inc()
            log.warning("sweep failed", error=str(error))
            connection.close()
        except Exception:
            # The outermost loop of the sweep: without it no job would ever be repaired again.
            measures.SWEEP_FAILED.inc()
            log.exception("sweep failed")
        stop.wait(settings.JOB_SWEEP_S)
    connection.close()


def _ask(query: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, [_LOCK])
        return cursor.fetchone()[0]
