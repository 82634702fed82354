from __future__ import annotations

import pytest
from django.conf import settings

from orchestrator.celery import app


@pytest.fixture(autouse=True)
def _empty_broker() -> None:
    """Messages of jobs that earlier tests made would count as waiting ones."""
    with app.connection_for_write() as connection:
        for queue in settings.JOB_QUEUES:
            try:
                connection.default_channel.queue_purge(queue=queue)
            except connection.channel_errors:
                continue  # never used so far
