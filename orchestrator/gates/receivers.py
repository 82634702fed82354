"""What a gate hears of its runs, inside the transaction that records the news."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from orchestrator.events.services import NewEvent
from orchestrator.gates.models import GateRun
from orchestrator.gates.telling import queue_advance, tell
from orchestrator.runs.models import Run
from orchestrator.runs.signals import run_ended, run_progressed


def gate_run_of(run: Run) -> GateRun | None:
    return GateRun.objects.select_related("gate").filter(run=run).first()


@receiver(run_ended, sender=Run)
def on_run_ended(run: Run, **_: Any) -> None:
    asked = gate_run_of(run)
    if asked is not None:
        queue_advance(gate_id=asked.gate_id, after=f"run-{run.pk}")


@receiver(run_progressed, sender=Run)
def on_run_progressed(run: Run, done: int, planned: int, **_: Any) -> None:
    asked = gate_run_of(run)
    if asked is not None:
        tell(
            asked.gate,
            NewEvent(
                "progress",
                {"look": asked.look, "side": asked.side, "done": done, "planned": planned},
            ),
        )
