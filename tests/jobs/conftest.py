from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings

from orchestrator.celery import app


@pytest.fixture(autouse=True)
def _empty_broker() -> None:
    """Messages of jobs that earlier tests made would count as waiting ones."""
    with app.connection_for_write() as connection:
        for queue in settings.JOB_QUEUES:
            try:
                channel: Any = connection.default_channel  # the stubs lack its methods
                channel.queue_purge(queue=queue)
            except connection.channel_errors:
                continue  # never used so far
