"""From the rollouts of a climb's training step to training rows."""

from __future__ import annotations

from typing import Any

from orchestrator.climbs.learning import rewards_of_run
from orchestrator.runs.models import Run
from orchestrator.trainings import rows


def rows_of_run(run: Run, *, weight_version: str) -> list[dict[str, Any]]:
    """The reward is the score without criteria that are barred from being one."""
    return rows.rows_of_run(run, rewards_of_run(run), weight_version=weight_version)
