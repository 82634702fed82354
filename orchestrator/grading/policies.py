"""What a project lets a criterion be used for, and from where on it believes one.

A barred criterion is still graded and shown, and it still counts in scores. It is not a training
reward and not what an optimiser climbs on: whoever learns from rollouts asks `rewards` for their
scores without it. Nobody is barred by a program; people do it, with a reason that is kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db import transaction

from orchestrator.grading.errors import PolicyRefused
from orchestrator.grading.models import CalibrationBar, CriterionPolicy, CriterionPolicyEntry
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.runs.models import Rollout, VerdictRecord
from rubrics.codec import from_json
from rubrics.exclusion import aggregate_without
from rubrics.models import Rubric
from rubrics.types import RubricSpec, State, Verdict

MAX_REASON = 500
MAX_MIN_LABELS = 10_000


@dataclass(frozen=True)
class Bar:
    """From where on a project believes a criterion."""

    kappa: float
    min_labels: int


def bar_of(project_id: int) -> Bar:
    row = CalibrationBar.objects.filter(project_id=project_id).first() or CalibrationBar()
    return Bar(row.kappa, row.min_labels)


def set_bar(*, actor: User, project: Project, kappa: float, min_labels: int) -> Bar:
    """Raises PolicyRefused."""
    require(actor, project, Role.EDITOR)
    if not (math.isfinite(kappa) and 0 <= kappa <= 1):
        raise PolicyRefused(f"The bar for κ is a number from 0 to 1, not {kappa:g}.")
    if not 2 <= min_labels <= MAX_MIN_LABELS:
        raise PolicyRefused(
            f"The least number of labels is from 2 to {MAX_MIN_LABELS:,}, not {min_labels:,}."
        )
    CalibrationBar.objects.update_or_create(
        project=project,
        defaults={"kappa": kappa, "min_labels": min_labels, "changed_by": actor},
    )
    return Bar(kappa, min_labels)


def barred(rubric_id: int) -> dict[str, str]:
    """Id of each barred criterion -> why."""
    rows = CriterionPolicy.objects.filter(rubric_id=rubric_id, is_barred=True)
    return dict(rows.order_by("criterion").values_list("criterion", "reason"))


def policies_of(rubric_id: int) -> dict[str, CriterionPolicy]:
    rows = CriterionPolicy.objects.filter(rubric_id=rubric_id).select_related("changed_by")
    return {row.criterion: row for row in rows}


def entries_of(rubric_id: int) -> list[CriterionPolicyEntry]:
    """What was decided, newest first."""
    return list(
        CriterionPolicyEntry.objects.filter(rubric_id=rubric_id).select_related("user")[:50]
    )


def bar_criterion(*, actor: User, rubric: Rubric, criterion: str, reason: str) -> None:
    """From the next run that a climb asks for. Raises PolicyRefused."""
    _decide(actor, rubric, criterion, is_barred=True, reason=reason)


def allow_criterion(*, actor: User, rubric: Rubric, criterion: str, reason: str) -> None:
    """Takes a bar back. Raises PolicyRefused."""
    _decide(actor, rubric, criterion, is_barred=False, reason=reason)


def _decide(actor: User, rubric: Rubric, criterion: str, *, is_barred: bool, reason: str) -> None:
    require(actor, rubric.project_id, Role.EDITOR)
    reason = " ".join(reason.split())
    if not reason or len(reason) > MAX_REASON:
        raise PolicyRefused(f"Say why, in 1 to {MAX_REASON} characters: others will ask.")
    if not _is_known(rubric, criterion):
        raise PolicyRefused(f"No version of {rubric.name} has a criterion {criterion!r}.")
    with transaction.atomic():
        policy, _ = CriterionPolicy.objects.select_for_update().get_or_create(
            rubric=rubric, criterion=criterion
        )
        if policy.is_barred == is_barred and policy.reason == reason:
            return
        policy.is_barred, policy.reason, policy.changed_by = is_barred, reason, actor
        policy.save()
        CriterionPolicyEntry.objects.create(
            rubric=rubric, criterion=criterion, is_barred=is_barred, reason=reason, user=actor
        )


def _is_known(rubric: Rubric, criterion: str) -> bool:
    return any(
        isinstance(raw, dict) and raw.get("id") == criterion
        for spec in rubric.versions.values_list("spec", flat=True)
        for raw in spec.get("criteria") or ()
    )


# --- what others learn from ---------------------------------------------------------------------


def rewards(rollouts: Iterable[Rollout], left_out: Mapping[str, str]) -> dict[int, float | None]:
    """Score of each rollout without some criteria, from its stored verdicts; None: it has none.

    Nothing left out: the score as it is. Two queries for any number of rollouts of one run.
    """
    found = list(rollouts)
    if not left_out:
        return {rollout.pk: rollout.score for rollout in found}
    verdicts: dict[int, list[VerdictRecord]] = {}
    for record in VerdictRecord.objects.filter(rollout__in=found).defer("detail", "cites"):
        verdicts.setdefault(record.rollout_id, []).append(record)
    specs: dict[int, RubricSpec] = {}
    values: dict[int, float | None] = {}
    for rollout in found:
        version = rollout.run.rubric_version
        spec = specs.get(version.pk) or specs.setdefault(version.pk, from_json(version.spec))
        if not left_out.keys() & {criterion.id for criterion in spec.criteria}:
            values[rollout.pk] = rollout.score
            continue
        stored = [_verdict(record) for record in verdicts.get(rollout.pk, ())]
        # A rollout that was never graded has no verdicts, which makes its score pending.
        values[rollout.pk] = aggregate_without(spec, stored, left_out).value
    return values


def _verdict(record: VerdictRecord) -> Verdict:
    return Verdict(record.criterion, State(record.state), record.value, record.reason or "–")
