"""What changes reports of attacks: asked for, filled, ended; a finding becomes a golden case."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from orchestrator.events.services import Fence, hold_fence
from orchestrator.grading.errors import AttackRefused
from orchestrator.grading.models import (
    GoldenCase,
    GoldenExpectation,
    RedTeamReport,
    RegradeState,
)
from orchestrator.grading.redteam.bases import Base
from orchestrator.grading.redteam.queries import golden_name
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from rubrics.codec import from_json
from rubrics.errors import RubricInvalid
from rubrics.models import Rubric, RubricVersion
from rubrics.redteam.attacks import BY_ID
from rubrics.redteam.cases import Case
from rubrics.transcript_codec import to_json

OPEN_STATES = (RegradeState.QUEUED, RegradeState.RUNNING)
JOB_KIND = "grading.redteam"
DEFAULT_BASES, MAX_BASES = 4, 20
DEFAULT_CAP_USD, MAX_CAP_USD = 1.0, 1_000.0


def attack_rubric(
    *,
    actor: User,
    rubric: Rubric,
    spec: Mapping[str, Any],
    version: RubricVersion | None,
    n_bases: int = DEFAULT_BASES,
    cap_usd: float = DEFAULT_CAP_USD,
) -> RedTeamReport:
    """Queues an attack; the one that is under way where there is one. Raises AttackRefused."""
    require(actor, rubric.project_id, Role.EDITOR)
    if not 2 <= n_bases <= MAX_BASES:
        raise AttackRefused(f"Attack 2 to {MAX_BASES} rollouts, not {n_bases}.")
    if not 0 <= cap_usd <= MAX_CAP_USD:
        raise AttackRefused(f"The cap for judges is $0 to ${MAX_CAP_USD:,.0f}.")
    try:
        from_json(spec)
    except RubricInvalid as invalid:
        raise AttackRefused(f"The rubric cannot be graded by yet: {invalid}") from None
    with transaction.atomic():
        open_one = rubric.attacks.filter(state__in=OPEN_STATES).first()
        if open_one is not None:
            return open_one
        report = RedTeamReport.objects.create(
            rubric=rubric,
            spec=dict(spec),
            version=version,
            summary={"settings": {"bases": n_bases, "cap_usd": cap_usd}},
            asked_by=actor,
        )
        report.job = jobs.enqueue(
            kind=JOB_KIND, spec={"report_id": report.pk}, key=f"redteam-{report.pk}"
        )
        report.save(update_fields=["job"])
    return report


def cancel_attack(*, actor: User, report: RedTeamReport) -> None:
    """What it has found so far stays. An ended one is left as it is."""
    require(actor, report.rubric.project_id, Role.EDITOR)
    if report.job is not None and report.state in OPEN_STATES:
        jobs.cancel(job=report.job)


def make_golden_case(*, actor: User, report: RedTeamReport, number: int) -> GoldenCase:
    """The attack of a result becomes a case that must fail. Raises AttackRefused."""
    require(actor, report.rubric.project_id, Role.EDITOR)
    if not 0 <= number < len(report.results):
        raise AttackRefused("There is no such result in this report.")
    result = report.results[number]
    attack = BY_ID.get(result["attack"])
    base = report.summary["bases"][result["base"]]
    made = None
    if attack is not None:
        transcript = Base.of_json(base).transcript
        case = Case(transcript, from_json(report.spec), base["is_success"])
        made = attack.make(case)
    if attack is None or made is None:
        raise AttackRefused("This attack is no longer known; attack the rubric again.")
    name = golden_name(attack, base)
    try:
        with transaction.atomic():
            return GoldenCase.objects.create(
                rubric=report.rubric,
                name=name,
                expect=GoldenExpectation.FAIL,
                transcript=to_json(made),
                rollout_id=base["rollout"],
                created_by=actor,
            )
    except IntegrityError:
        raise AttackRefused(f"There is a golden case “{name}” already.") from None


# --- the job's writes ----------------------------------------------------------------------------


def mark_running(*, report_id: int, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        RedTeamReport.objects.filter(pk=report_id, state=RegradeState.QUEUED).update(
            state=RegradeState.RUNNING
        )


def store(
    *,
    report_id: int,
    results: Sequence[Mapping[str, Any]],
    summary: Mapping[str, Any],
    fence: Fence,
) -> None:
    """All that is known so far."""
    with transaction.atomic():
        hold_fence(fence)
        RedTeamReport.objects.filter(pk=report_id).update(
            results=list(results), summary=dict(summary)
        )


def end_attack(*, report_id: int, state: str, error: str = "", fence: Fence | None = None) -> None:
    """Once; a later end changes nothing."""
    with transaction.atomic():
        if fence is not None:
            hold_fence(fence)
        RedTeamReport.objects.filter(pk=report_id, state__in=OPEN_STATES).update(
            state=state, error=error, ended_at=timezone.now()
        )
