"""What changes checks: asked for, one result after the other, ended."""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from orchestrator.environments.conformance.catalogue import CATALOGUE
from orchestrator.environments.conformance.finding import EVIDENCE_CHARS
from orchestrator.environments.conformance.running import Graded
from orchestrator.environments.models import (
    CheckResult,
    CheckState,
    EnvironmentCheck,
    EnvironmentVersion,
)
from orchestrator.events.services import Fence, hold_fence
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User

OPEN_STATES = (CheckState.QUEUED, CheckState.RUNNING)
JOB_KIND = "environments.check"


def check_environment(*, actor: User, version: EnvironmentVersion) -> EnvironmentCheck:
    """Queues a check of the version; the one that is under way where there is one."""
    require(actor, version.environment.project_id, Role.EDITOR)
    with transaction.atomic():
        open_one = version.checks.filter(state__in=OPEN_STATES).first()
        if open_one is not None:
            return open_one
        check = EnvironmentCheck.objects.create(
            version=version, n_total=len(CATALOGUE), asked_by=actor
        )
        check.job = jobs.enqueue(
            kind=JOB_KIND,
            queue="rollouts",
            spec={"check_id": check.pk},
            key=f"environment-check-{check.pk}",
        )
        check.save(update_fields=["job"])
    return check


def cancel_check(*, actor: User, check: EnvironmentCheck) -> None:
    """Ends a check; what was found so far stays. An ended one is left as it is."""
    require(actor, check.version.environment.project_id, Role.EDITOR)
    if check.job is not None:
        jobs.cancel(job=check.job)


def mark_running(*, check: EnvironmentCheck, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        EnvironmentCheck.objects.filter(pk=check.pk, state=CheckState.QUEUED).update(
            state=CheckState.RUNNING
        )


def store_result(*, check: EnvironmentCheck, check_id: str, graded: Graded, fence: Fence) -> None:
    """Adds a finding; one that exists (from an attempt before) stays."""
    finding = graded.finding
    with transaction.atomic():
        hold_fence(fence)
        CheckResult.objects.get_or_create(
            check_run=check,
            check_id=check_id,
            defaults={
                "status": finding.status.value,
                "measured": dict(finding.measured),
                "evidence": finding.evidence[:EVIDENCE_CHARS],
                "remediation": finding.remediation or CATALOGUE[check_id].remediation,
                "duration_s": graded.duration_s,
            },
        )


def finish_check(*, check: EnvironmentCheck, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        _end(check.pk, CheckState.COMPLETED)


def end_unfinished_check(*, check_id: int, state: str, error: str) -> None:
    """For a check whose job was cancelled or given up."""
    _end(check_id, state, error)


def _end(check_id: int, state: str, error: str = "") -> None:
    EnvironmentCheck.objects.filter(pk=check_id, state__in=OPEN_STATES).update(
        state=state, error=error, ended_at=timezone.now()
    )
