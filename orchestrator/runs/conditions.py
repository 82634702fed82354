"""Under which conditions a run's numbers come about: kept with the run, shown on its page."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from django.db import transaction

from orchestrator.environments import egress
from orchestrator.environments.conformance.queries import warnings_for
from orchestrator.environments.isolation import isolation_of
from orchestrator.events.services import Fence, NewEvent, hold_fence
from orchestrator.runs.models import Run

log = structlog.get_logger(__name__)
HARNESS = "harness."
"""Codes of remarks begin with it."""
MAX_REMARKS = 20


def note_conditions(*, run: Run, fence: Fence) -> None:
    """Stores how agents are kept apart from this machine, and what the environment's checks found.

    `ValueError` that names the field, for resources that cannot be used.
    """
    run.isolation = isolation_of(run.environment_version)
    found_before = [each for each in run.warnings if each["code"].startswith(HARNESS)]
    run.warnings = [*warnings_for(run.environment_version), *found_before]
    with transaction.atomic():
        hold_fence(fence)
        run.save(update_fields=["isolation", "warnings"])


def keep_decisions(run: Run) -> None:
    """Stores what the run's servers asked of the network. Never fails a run."""
    try:
        egress.collect(run.environment_version)
    except Exception as exc:  # boundary: the numbers are good without the log
        log.exception("egress decisions were not kept", run_id=run.pk, reason=str(exc))


class Remarks:
    """What preparing a run and its rollouts find out about its harnesses, each told once."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._told: dict[str, str] = {}
        self.is_fresh = False
        """Something was added since it was stored."""

    def add(self, code: str, text: str) -> None:
        """`code` begins with `harness.`."""
        if text not in self._told and len(self._told) < MAX_REMARKS:
            self._told[text] = code
            self.is_fresh = True

    def store(self) -> dict[int, Sequence[NewEvent]]:
        """Needs a transaction that holds the fence. Safe to call again."""
        self.is_fresh = False
        warnings = Run.objects.values_list("warnings", flat=True).get(pk=self._run.pk)
        known = {each["text"] for each in warnings}
        new = [
            {"code": code, "text": text} for text, code in self._told.items() if text not in known
        ]
        if new:
            Run.objects.filter(pk=self._run.pk).update(warnings=[*warnings, *new])
        return {}
