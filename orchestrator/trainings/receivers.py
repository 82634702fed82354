"""What trainings hear of runs, inside the transaction that records the news."""

from __future__ import annotations

from typing import Any

from django.dispatch import receiver

from orchestrator.runs.models import Purpose, Rollout, Run
from orchestrator.runs.signals import rollout_ended
from orchestrator.trainings.own import learn_from


@receiver(rollout_ended, sender=Run)
def on_rollout_ended(run: Run, rollout: Rollout, **_: Any) -> None:
    if run.purpose == Purpose.TRAIN:
        learn_from(rollout)
