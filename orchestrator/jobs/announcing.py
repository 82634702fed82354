"""Telling workers that a job may run. A hint: it may be lost, repeated or late without harm."""

from __future__ import annotations

from typing import Any

import structlog
from kombu.exceptions import OperationalError

from orchestrator.celery import app
from orchestrator.jobs.tasks import run_job

log = structlog.get_logger(__name__)

# What the transports raise when the broker is away: kombu's own, and plain socket and file errors.
BROKER_ERRORS = (OperationalError, OSError)


def announce(job_id: int, queue: str) -> bool:
    """False if the broker cannot be reached; the sweep tries again."""
    try:
        run_job.apply_async((job_id,), queue=queue)
    except BROKER_ERRORS as error:
        log.warning("broker unreachable", job_id=job_id, error=str(error))
        return False
    return True


def count_messages(queue: str) -> int:
    """Messages that wait in the broker for `queue`. Raises one of BROKER_ERRORS."""
    with app.connection_for_write(connect_timeout=2) as connection:
        try:
            channel: Any = connection.default_channel  # the stubs lack its methods
            declared = channel.queue_declare(queue=queue, passive=True)
        except connection.channel_errors:
            return 0  # nothing was ever sent to it
        return int(declared.message_count)
