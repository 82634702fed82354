"""From rollouts to what engines look at, and back: the one place where both are matched.

A candidate is a set of edits; a rollout knows a harness. Two sets that make the same harness are
told apart by `Candidate.twin`, which moves their replicates out of each other's way, so that every
row has a rollout of its own behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache

from django.db.models import Q, QuerySet

from optimizer.edits import Edit, apply_edit
from optimizer.engines import contract
from optimizer.engines.contract import Request, Row
from optimizer.errors import EditInvalid
from optimizer.harness import Harness
from optimizer.models import Candidate, HarnessVersion, Search, SearchRun
from optimizer.store import load_harness, store_harness
from orchestrator.environments.models import Task
from orchestrator.grading.policies import rewards
from orchestrator.runs.models import (
    ENDED_RUN_STATES,
    OPEN_ROLLOUT_STATES,
    Purpose,
    Rollout,
    RolloutState,
    Run,
    RunState,
)
from orchestrator.runs.services import PlannedRollout
from orchestrator.searches.learning import WHOLE, left_out_of
from rubrics.aggregate import goodness, reaches
from rubrics.codec import from_json
from rubrics.types import Criterion

ASKED_AGAIN = ("run_failed", "budget_spent")
"""Causes of a rollout that could not be had: it is asked for again when the search goes on."""
REPEATED = "retry"
"""Phase of a run that repeats what another has lost."""
TWIN_STEP = 10_000_000
"""Above every replicate that an engine or the A/A twin asks for."""
STATUS = {
    contract.Phase.RACE: Candidate.Status.RACING,
    contract.Phase.CERTIFY: Candidate.Status.RACING,
    contract.Phase.MODELS: Candidate.Status.RACING,
}


def rollouts_of(search: Search) -> list[Rollout]:
    """Those that count, in the order of their runs; of a repeat the newest attempt."""
    found: dict[tuple[int, int, int], Rollout] = {}
    query = _counted().filter(run__search_run__search=search)
    for rollout in query.exclude(run__search_run__phase__in=WHOLE).order_by("run_id", "id"):
        found[rollout.harness_id, rollout.task_id, rollout.replicate] = rollout
    return list(found.values())


def _counted() -> QuerySet[Rollout]:
    return (
        Rollout.objects.exclude(state__in=(*OPEN_ROLLOUT_STATES, RolloutState.CANCELLED))
        .exclude(cause__in=ASKED_AGAIN)
        .select_related("task", "run__rubric_version", "run__search_run")
    )


def barren_runs(search: Search) -> QuerySet[SearchRun]:
    """Those that left rollouts to be asked for again."""
    return search.search_runs.filter(
        Q(run__state__in=(RunState.FAILED, RunState.CANCELLED))
        | Q(run__rollouts__cause__in=ASKED_AGAIN)
    ).distinct()


def rows_of(search: Search) -> list[Row]:
    """Of the runs that have ended; of a repeat the newest attempt."""
    found: dict[tuple[int, str, int], Row] = {}
    left_out = tuple(left_out_of(search).items())
    asked = search.search_runs.exclude(phase__in=WHOLE).filter(run__state__in=ENDED_RUN_STATES)
    for run_id, made_at in asked.order_by("run_id").values_list("run_id", "run__created_at"):
        found.update(_rows_of_run(search.pk, run_id, made_at, left_out))
    return list(found.values())


@lru_cache(maxsize=4_096)
def _rows_of_run(
    search_id: int, run_id: int, made_at: datetime, left_out: tuple[tuple[str, str], ...]
) -> dict[tuple[int, str, int], Row]:
    """Kept, since a run that has ended does not change and a search looks at all of them after
    each; `made_at` tells runs apart whose database was made anew.
    """
    rollouts = list(_counted().filter(run_id=run_id).prefetch_related("verdicts").order_by("id"))
    barred = dict(left_out)
    scores = rewards(rollouts, barred)
    candidates = Candidate.objects.filter(
        search_id=search_id, harness_id__in={rollout.harness_id for rollout in rollouts}
    )
    keys = {(row.harness_id, row.twin): row.key for row in candidates}
    rubric = Run.objects.select_related("rubric_version").get(pk=run_id).rubric_version
    criteria = {criterion.id: criterion for criterion in from_json(rubric.spec).criteria}
    return {
        (rollout.harness_id, rollout.task.key, rollout.replicate): Row(
            candidate=keys[rollout.harness_id, rollout.replicate // TWIN_STEP],
            task=rollout.task.key,
            replicate=rollout.replicate % TWIN_STEP,
            score=scores[rollout.pk],
            criteria={
                id: goodness(criteria[id], value)
                for id, value in _values(rollout, criteria)
                if id not in barred
            },
            met={id: reaches(criteria[id], value) for id, value in _values(rollout, criteria)},
            cost_usd=rollout.cost_usd,
            tokens=rollout.tokens_in + rollout.tokens_out,
            latency_s=rollout.latency_s,
            phase=_phase_of(rollout),
        )
        for rollout in rollouts
    }


def _values(rollout: Rollout, criteria: Mapping[str, Criterion]) -> list[tuple[str, float]]:
    return [
        (verdict.criterion, verdict.value)
        for verdict in rollout.verdicts.all()
        if verdict.value is not None and verdict.criterion in criteria
    ]


def _phase_of(rollout: Rollout) -> str:
    """A repeat belongs to what it repeats."""
    phase = rollout.run.search_run.phase
    if phase != REPEATED:
        return phase
    is_pair = rollout.run.purpose == Purpose.CERTIFY
    return str(contract.Phase.CERTIFY if is_pair else contract.Phase.SCREEN)


def planned(search: Search, requests: Sequence[Request]) -> list[PlannedRollout]:
    """The rollouts of these requests; their candidates and harnesses are stored. Needs a
    transaction.
    """
    candidates = stored_candidates(search, requests)
    tasks = {
        task.key: task
        for task in Task.objects.filter(
            version_id=search.environment_version_id, key__in={r.task for r in requests}
        )
    }
    plan = []
    for request in requests:
        candidate = candidates[request.candidate.key]
        replicate = request.replicate + TWIN_STEP * candidate.twin
        plan.append(PlannedRollout(candidate.harness_id, tasks[request.task], replicate))
    return plan


def stored_candidates(search: Search, requests: Iterable[Request]) -> Mapping[str, Candidate]:
    by_key = {request.candidate.key: request for request in requests}
    seed: Harness | None = None
    found = {row.key: row for row in search.candidates.filter(key__in=by_key)}
    for key, request in by_key.items():
        if key not in found:
            seed = seed or load_harness(search.seed_harness)
            found[key] = store_candidate(search, request.candidate, seed)
        status = STATUS.get(request.phase)
        if status is not None and found[key].status == Candidate.Status.SCREENING:
            Candidate.objects.filter(pk=found[key].pk).update(status=status)
    return found


def store_candidate(
    search: Search, candidate: contract.Candidate, seed: Harness | None = None
) -> Candidate:
    known = search.candidates.filter(key=candidate.key).first()
    if known is not None:
        return known
    if seed is None:
        seed = load_harness(search.seed_harness)
    version = harness_of(search, candidate, seed)
    # The demonstrations and texts of a candidate come in one order for ever: that of its edits.
    return Candidate.objects.create(
        search=search,
        harness=version,
        key=candidate.key,
        twin=search.candidates.filter(harness=version).count(),
        edits=[edit.sha256 for edit in candidate.edits],
    )


def harness_of(search: Search, candidate: contract.Candidate, seed: Harness) -> HarnessVersion:
    return store_harness(project_id=search.project_id, harness=built(seed, candidate.edits))


def built(seed: Harness, edits: Sequence[Edit]) -> Harness:
    """The seed with the edits, whole bodies first. One that another has made impossible (its
    anchor is gone) is left out: each of them was possible on the seed alone.
    """
    harness = seed
    for edit in sorted(edits, key=lambda e: not (e.op == "set" and not e.anchor)):
        try:
            harness = apply_edit(harness, edit)
        except EditInvalid:
            continue
    return harness
