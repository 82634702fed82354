"""Asking for a better question: begun, watched, ended, and put into the rubric's draft.

Nothing is published here. The draft goes the way of every draft: golden cases, back-test, dialog.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils import timezone

from orchestrator.agents.models import ModelEndpoint
from orchestrator.events.services import Fence, hold_fence
from orchestrator.grading.drafts import save_draft, start_draft
from orchestrator.grading.errors import DraftGone, DraftRefused, Stale
from orchestrator.grading.models import Alignment, RegradeState, RubricDraft
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.review.calibration import Calibration, Paired
from orchestrator.review.calibration_queries import calibrations
from orchestrator.review.errors import ReviewRefused
from rubrics.models import Rubric, RubricVersion

JOB_KIND = "review.align"
LEAST_DISAGREEMENTS = 2
LEAST_HELD_OUT = 10
"""With fewer no test could tell two questions apart."""
MOST_HELD_OUT = 200
OPEN_STATES = (RegradeState.QUEUED, RegradeState.RUNNING)


def halves(found: Calibration) -> tuple[list[Paired], list[Paired]]:
    """(to learn from, kept apart for the test); the newest of the latter where there are many."""
    learn = [pair for pair in found.pairs if not pair.is_held_out]
    test = sorted((p for p in found.pairs if p.is_held_out), key=lambda p: -p.rollout)
    return learn, test[:MOST_HELD_OUT]


def why_not(found: Calibration | None) -> str:
    """What is missing before a better question can be asked for; empty if nothing."""
    if found is None or not found.criterion.is_judged_alone:
        return "Only the question of a judge, or of a panel of them, can be bettered this way."
    learn, test = halves(found)
    wrong = sum(not pair.agrees for pair in learn)
    if wrong < LEAST_DISAGREEMENTS:
        return (
            f"It needs {LEAST_DISAGREEMENTS} disagreements to learn from; there are {wrong} in the "
            "half of the labels that is not kept for the test."
        )
    if len(test) < LEAST_HELD_OUT:
        return (
            f"It needs {LEAST_HELD_OUT} usable labels in the half that is kept for the test; there "
            f"are {len(test)}."
        )
    return ""


def first_of(rubric: Rubric, version: RubricVersion, criterion: str) -> Calibration | None:
    """Of the judge with most labels."""
    found = calibrations(rubric, version, only=criterion).get(criterion)
    return found[0] if found else None


def start_alignment(
    *,
    actor: User,
    version: RubricVersion,
    criterion: str,
    endpoint: ModelEndpoint,
    max_cost_usd: float = 1.0,
) -> Alignment:
    """Queued; the one that is under way where there is one. Raises ReviewRefused."""
    project_id = version.rubric.project_id
    require(actor, project_id, Role.EDITOR)
    if endpoint.project_id != project_id:
        raise ReviewRefused("The model is not of this project.")
    if not (math.isfinite(max_cost_usd) and 0 < max_cost_usd <= 1000):
        raise ReviewRefused("The cap on cost is from above 0 to 1000 USD.")
    if problem := why_not(first_of(version.rubric, version, criterion)):
        raise ReviewRefused(problem)
    with transaction.atomic():
        RubricVersion.objects.select_for_update().get(pk=version.pk)
        open_one = version.alignments.filter(criterion=criterion, state__in=OPEN_STATES).first()
        if open_one is not None:
            return open_one
        made = Alignment.objects.create(
            version=version,
            criterion=criterion,
            endpoint=endpoint,
            max_cost_usd=max_cost_usd,
            asked_by=actor,
        )
        made.job = jobs.enqueue(
            kind=JOB_KIND, spec={"alignment_id": made.pk}, key=f"alignment-{made.pk}"
        )
        made.save(update_fields=["job"])
    return made


def cancel_alignment(*, actor: User, alignment: Alignment) -> None:
    """An ended one is left as it is."""
    require(actor, alignment.version.rubric.project_id, Role.EDITOR)
    if alignment.job is not None:
        jobs.cancel(job=alignment.job)


def take_over(*, actor: User, alignment: Alignment) -> RubricDraft:
    """Puts the tested question into the rubric's draft, made where there is none.

    Raises ReviewRefused, with what stands in the way.
    """
    rubric = alignment.version.rubric
    require(actor, rubric.project_id, Role.EDITOR)
    question = offered_question(alignment)
    if not question:
        raise ReviewRefused("No proposal of this was tested, so there is none to take over.")
    try:
        with transaction.atomic():
            draft = start_draft(actor=actor, rubric=rubric)
            spec = copy.deepcopy(draft.spec)
            criterion = _in(spec, alignment.criterion)
            if criterion is None:
                raise ReviewRefused(
                    f"The draft has no judge {alignment.criterion} any more; put the question in "
                    "by hand."
                )
            criterion["params"] = {**(criterion.get("params") or {}), "question": question}
            saved = save_draft(actor=actor, draft=draft, spec=spec, revision=draft.revision).draft
            Alignment.objects.filter(pk=alignment.pk).update(draft_revision=saved.revision)
    except (Stale, DraftGone, DraftRefused) as exc:
        raise ReviewRefused(f"The draft was not changed: {exc} Try again.") from exc
    return saved


def _in(spec: Mapping[str, Any], criterion: str) -> dict[str, Any] | None:
    for raw in spec.get("criteria") or ():
        if isinstance(raw, dict) and raw.get("id") == criterion:
            return raw if str(raw.get("kind", "")).startswith("judge") else None
    return None


def offered_question(alignment: Alignment) -> str:
    """Of the proposal that was tested, once it was."""
    good = [p for p in alignment.proposals if not p.get("rejected")]
    return str(good[-1]["question"]) if good and alignment.result else ""


def alignments_of(rubric: Rubric) -> Mapping[str, Sequence[Alignment]]:
    """By criterion, the newest first."""
    found: dict[str, list[Alignment]] = {}
    rows = Alignment.objects.filter(version__rubric=rubric).select_related(
        "version", "endpoint", "asked_by"
    )
    for row in rows[:100]:
        found.setdefault(row.criterion, []).append(row)
    return found


# --- for the job ---------------------------------------------------------------------------------


def mark_running(alignment: Alignment, *, n_total: int, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        Alignment.objects.filter(pk=alignment.pk, state__in=OPEN_STATES).update(
            state=RegradeState.RUNNING, n_total=n_total, n_done=0
        )


def store_proposal(alignment: Alignment, proposal: Mapping[str, Any], *, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        alignment.proposals = [*alignment.proposals, dict(proposal)]
        alignment.save(update_fields=["proposals"])


def add_spent(
    alignment: Alignment, *, tokens: int, cost_usd: float, n_done: int = 0, fence: Fence
) -> None:
    with transaction.atomic():
        hold_fence(fence)
        Alignment.objects.filter(pk=alignment.pk).update(
            tokens=F("tokens") + tokens,
            cost_usd=F("cost_usd") + cost_usd,
            n_done=F("n_done") + n_done,
        )


def finish(
    alignment: Alignment, *, result: Mapping[str, Any], error: str = "", fence: Fence
) -> None:
    with transaction.atomic():
        hold_fence(fence)
        Alignment.objects.filter(pk=alignment.pk, state__in=OPEN_STATES).update(
            state=RegradeState.FAILED if error else RegradeState.COMPLETED,
            result=dict(result),
            error=error,
            ended_at=timezone.now(),
        )


def end_unfinished(alignment_id: int, *, state: str, error: str) -> None:
    """For one whose job was cancelled or given up."""
    Alignment.objects.filter(pk=alignment_id, state__in=OPEN_STATES).update(
        state=state, error=error, ended_at=timezone.now()
    )
