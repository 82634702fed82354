"""What signs of life say of the installation as a whole."""

from __future__ import annotations

from typing import Any

from django.conf import settings

from orchestrator.processes.beating import database_clock
from orchestrator.processes.models import ProcessKind
from orchestrator.processes.queries import living


def queues_without_worker() -> list[str]:
    rows: Any = living().filter(kind=ProcessKind.WORKER).values_list("queues", flat=True)
    served = {queue for queues in rows for queue in queues}
    return [queue for queue in settings.JOB_QUEUES if queue not in served]


def last_sweep_age_s() -> float | None:
    """Of whoever swept last, as of their last sign of life; None where nobody did."""
    now, _ = database_clock()
    swept: list[float] = []
    for process in living().filter(kind=ProcessKind.SWEEP):
        at_s = _figure(process.measures, "switchback_sweep_last_timestamp_seconds")
        if at_s:
            swept.append(at_s - process.skew_s)
    return max(0.0, now.timestamp() - max(swept)) if swept else None


def _figure(measures: list[dict[str, Any]], name: str) -> float | None:
    for family in measures:
        if family["name"] == name:
            return next((float(value) for _, _, value in family["samples"]), None)
    return None
