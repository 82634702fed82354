"""Under which conditions a run's numbers come about: kept with the run, shown on its page."""

from __future__ import annotations

import structlog
from django.db import transaction

from orchestrator.environments import egress
from orchestrator.environments.conformance.queries import warnings_for
from orchestrator.environments.isolation import isolation_of
from orchestrator.events.services import Fence, hold_fence
from orchestrator.runs.models import Run

log = structlog.get_logger(__name__)


def note_conditions(*, run: Run, fence: Fence) -> None:
    """Stores how agents are kept apart from this machine, and what the environment's checks found.

    `ValueError` that names the field, for resources that cannot be used.
    """
    run.isolation = isolation_of(run.environment_version)
    run.warnings = warnings_for(run.environment_version)
    with transaction.atomic():
        hold_fence(fence)
        run.save(update_fields=["isolation", "warnings"])


def keep_decisions(run: Run) -> None:
    """Stores what the run's servers asked of the network. Never fails a run."""
    try:
        egress.collect(run.environment_version)
    except Exception as exc:  # boundary: the numbers are good without the log
        log.exception("egress decisions were not kept", run_id=run.pk, reason=str(exc))
