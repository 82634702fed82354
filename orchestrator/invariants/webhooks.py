"""Webhooks: what was to be told is told, or is still on its way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from orchestrator.invariants.finding import Finding, Findings


class DeliveryRow(NamedTuple):
    id: int
    state: str
    errors: Sequence[str]
    """Of its attempts, in order; empty for one that was heard."""
    job_state: str | None


def check_deliveries(rows: Iterable[DeliveryRow]) -> Findings:
    for row in rows:
        subject = f"delivery {row.id}"
        heard = sum(not error for error in row.errors)
        if row.state == "delivered" and heard != 1:
            yield Finding("webhook.delivered", subject, f"delivered, with {heard} good answers")
        elif row.state != "delivered" and heard:
            yield Finding("webhook.delivered", subject, f"{row.state}, although it was heard")
        if row.state == "waiting" and row.job_state not in ("queued", "running"):
            yield Finding("webhook.job", subject, f"it waits, and its job is {row.job_state}")
