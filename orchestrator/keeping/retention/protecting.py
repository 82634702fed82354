"""What must stay whatever a rule says, since something that people rely on rests on it.

Every reason is a query of keys, so that a look at a million rollouts stays inside the database.
"""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet

from optimizer.models import Comparison, Search, SearchPhase, SearchRun, SearchState
from orchestrator.climbs.models import Climb, ClimbRun, ClimbState, Rung
from orchestrator.gates.models import GateRun
from orchestrator.grading.models import GoldenCase
from orchestrator.keeping.models import RetentionMark, What
from orchestrator.review.models import Annotation, Correction, ReviewItem
from orchestrator.runs.models import ENDED_RUN_STATES, Rollout, Run
from training.models import Checkpoint, TrainingJob, TrainingRun, TrainingState

Reasons = dict[str, QuerySet[Any]]
"""Keys by the reason, in words that follow "kept for"."""
UNDER_WAY, CERTIFICATE, GATE, RELEASE = "work under way", "a certificate", "a gate", "a release"
PROMOTED, PEOPLE, GOLDEN, BY_HAND = (
    "a promoted checkpoint",
    "what people wrote or queued for review",
    "a golden case",
    "somebody who kept it",
)
_OPEN_SEARCH = (
    SearchState.QUEUED,
    SearchState.RUNNING,
    SearchState.PAUSED,
    SearchState.AWAITING_APPROVAL,
)
_OPEN_CLIMB = (ClimbState.QUEUED, ClimbState.RUNNING, ClimbState.PAUSED)
_OPEN_TRAINING = (TrainingState.QUEUED, TrainingState.RUNNING)


def runs(project_id: int) -> Reasons:
    """Keys of runs."""
    compared = [
        key
        for details in Comparison.objects.filter(project_id=project_id).values_list(
            "details", flat=True
        )
        for key in details.get("runs") or ()
        if isinstance(key, int)
    ]
    of_searches = SearchRun.objects.filter(search__project_id=project_id)
    of_climbs = ClimbRun.objects.filter(climb__project_id=project_id)
    of_trainings = TrainingRun.objects.filter(training_job__project_id=project_id)
    mine = Run.objects.filter(project_id=project_id)
    open_searches = Search.objects.filter(project_id=project_id, state__in=_OPEN_SEARCH)
    open_climbs = Climb.objects.filter(project_id=project_id, state__in=_OPEN_CLIMB)
    open_trainings = TrainingJob.objects.filter(project_id=project_id, state__in=_OPEN_TRAINING)
    promoted = Checkpoint.objects.filter(
        training_job__project_id=project_id, promoted_at__isnull=False
    )
    return {
        UNDER_WAY: mine.filter(
            ~Q(state__in=ENDED_RUN_STATES)
            | Q(pk__in=of_searches.filter(search__in=open_searches).values("run"))
            | Q(pk__in=of_climbs.filter(climb__in=open_climbs).values("run"))
            | Q(pk__in=of_trainings.filter(training_job__in=open_trainings).values("run"))
        ).values("pk"),
        CERTIFICATE: mine.filter(
            Q(pk__in=compared)
            | Q(
                pk__in=of_searches.filter(phase__in=(SearchPhase.CERTIFY, SearchPhase.TEST)).values(
                    "run"
                )
            )
            | Q(pk__in=Rung.objects.filter(climb__project_id=project_id).values("test_run"))
        ).values("pk"),
        GATE: GateRun.objects.filter(gate__project_id=project_id).values("run"),
        RELEASE: of_searches.filter(search__releases__isnull=False).values("run"),
        PROMOTED: of_trainings.filter(training_job__in=promoted.values("training_job")).values(
            "run"
        ),
        **{
            reason: Rollout.everything.filter(pk__in=found).values("run")
            for reason, found in _by_people(project_id).items()
        },
    }


def rollouts(project_id: int) -> Reasons:
    """Keys of rollouts: those of a protected run, and single ones."""
    single = _by_people(project_id)
    whole = runs(project_id)
    found = {
        reason: Rollout.everything.filter(run_id__in=keys).values("pk")
        for reason, keys in whole.items()
        if reason not in single
    }
    return {**found, **single}


def by_hand(project_id: int, what: What) -> Reasons:
    kept = RetentionMark.objects.filter(project_id=project_id, what=what, kept_at__isnull=False)
    return {BY_HAND: kept.values("object_id")}


def _by_people(project_id: int) -> Reasons:
    """Keys of rollouts that people said something of."""
    items = ReviewItem.objects.filter(queue__project_id=project_id)
    mine = Rollout.everything.filter(run__project_id=project_id)
    people = Q(pk__in=items.values("rollout")) | Q(
        pk__in=items.filter(other__isnull=False).values("other")
    )
    for model in (Annotation, Correction):
        people |= Q(
            pk__in=model._base_manager.filter(rollout__run__project_id=project_id).values("rollout")
        )
    golden = GoldenCase.objects.filter(rubric__project_id=project_id, rollout__isnull=False)
    return {PEOPLE: mine.filter(people).values("pk"), GOLDEN: golden.values("rollout")}
