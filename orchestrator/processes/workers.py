"""Workers say that they live from when Celery is ready to take jobs until it stops."""

from __future__ import annotations

from typing import Any

from celery.signals import worker_ready, worker_shutdown

from orchestrator.processes.beating import begin, end
from orchestrator.processes.models import ProcessKind


def connect() -> None:
    worker_ready.connect(_ready, dispatch_uid="signs-of-life")
    worker_shutdown.connect(_stopping, dispatch_uid="signs-of-life")


def _ready(sender: Any, **_: Any) -> None:
    queues = sorted(str(name) for name in sender.app.amqp.queues.consume_from)
    begin(ProcessKind.WORKER, queues=queues, slots=int(sender.controller.concurrency or 0))


def _stopping(**_: Any) -> None:
    end(ProcessKind.WORKER)
