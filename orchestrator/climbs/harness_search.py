"""Harness search on the climb's side: the rollouts that exist go in, the next runs come out.

The search itself is the pure function `optimizer.search.next_action`. Here its edits, bundles and
evidence become rows: edits and candidates are stored once, each of its requests becomes part of a
run, and rollouts of these runs are its only input. A resumed climb therefore asks for exactly
the rollouts that have no result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from django.db import transaction

from optimizer import search as engine
from optimizer.edits import Edit, apply_edits
from optimizer.models import Candidate, Comparison, HarnessVersion, Search
from optimizer.models import Edit as EditRow
from optimizer.store import load_harness, store_harness
from optimizer.tasks import TaskRef, passes
from orchestrator.climbs.asking import ask_for_run
from orchestrator.climbs.curricula import evidence_tasks
from orchestrator.climbs.learning import left_out_of_search
from orchestrator.climbs.models import Climb, Phase, Rung
from orchestrator.climbs.proposals import propose_edits
from orchestrator.climbs.settings import ClimbSettings, SearchSettings
from orchestrator.environments.models import Split, Task
from orchestrator.events.services import Fence, NewEvent, append, hold_fence
from orchestrator.grading.policies import rewards
from orchestrator.runs.models import Purpose, Rollout, Run, RunState
from orchestrator.runs.services import PlannedRollout

EVIDENCE = "evidence"
"""Key of the run that is watched before edits are proposed; not a part of the search itself."""

PURPOSES = {
    engine.Phase.SCREEN: Purpose.OPTIMISE,
    engine.Phase.RACE: Purpose.OPTIMISE,
    engine.Phase.CERTIFY: Purpose.CERTIFY,
}
LABELS = {
    engine.Phase.SCREEN: "Screening edits",
    engine.Phase.RACE: "Racing bundles",
    engine.Phase.CERTIFY: "Certifying on unseen tasks",
}


def advance_search(*, climb: Climb, rung: Rung, fence: Fence) -> HarnessVersion | Run | None:
    """The harness that the search ends with; a run that ended without any use; None while waiting.

    Raises LeaseLost, BudgetExceeded.
    """
    settings = ClimbSettings.from_json(climb.config).search
    evidence = _ask_for_evidence(climb, rung, settings, fence)
    latest = (
        Run.objects.filter(climb_run__climb=climb, climb_run__phase=Phase.SEARCH)
        .order_by("-id")
        .first()
    )
    assert latest is not None  # the evidence run is one
    if not latest.has_ended:
        return None
    if latest.state in (RunState.FAILED, RunState.CANCELLED):
        return latest
    search = climb.search or _create_search(climb, evidence, settings, fence)
    config = search_config(climb, search, settings)
    rows = _rows(climb, search)
    action = engine.next_action(config, rows)
    if isinstance(action, engine.Finished):
        scored = sum(row.score is not None for row in rows)
        is_measured = scored >= config.min_coverage * len(rows)
        return _conclude(climb, search, action, config, fence, is_measured=is_measured)
    _ask(climb, rung, search, action, config, fence)
    return None


def _ask_for_evidence(climb: Climb, rung: Rung, settings: SearchSettings, fence: Fence) -> Run:
    """The seed harness on some train tasks: what it does by itself."""
    if settings.evidence_sampler == "sequential":
        train = Task.objects.filter(version_id=climb.environment_version_id, split=Split.TRAIN)
        tasks = {task.key: task for task in train}
        refs = [TaskRef(task.key, task.family) for task in tasks.values()]
        order = islice(passes(refs, climb.seed, "evidence"), settings.evidence_tasks)
        chosen = [tasks[ref.key] for ref in order]
    else:
        chosen = evidence_tasks(climb=climb, settings=settings)
    return ask_for_run(
        climb=climb,
        rung=rung,
        key=EVIDENCE,
        label="Watching the seed harness",
        purpose=Purpose.OPTIMISE,
        plan=[PlannedRollout(climb.seed_harness_id, task) for task in chosen],
        seed_parts=("evidence",),
        fence=fence,
    )


def _create_search(climb: Climb, evidence: Run, settings: SearchSettings, fence: Fence) -> Search:
    edits = propose_edits(
        seed_harness=load_harness(climb.seed_harness),
        version=climb.environment_version,
        evidence=evidence,
        settings=settings,
        seed=climb.seed,
    )
    with transaction.atomic():
        hold_fence(fence)
        search = Search.objects.create(
            project=climb.project, seed_harness=climb.seed_harness, seed=climb.seed
        )
        EditRow.objects.bulk_create(
            EditRow(
                search=search,
                position=position,
                sha256=edit.sha256,
                operator=edit.operator,
                component=edit.component,
                data=edit.to_json(),
                support=edit.support,
            )
            for position, edit in enumerate(edits)
        )
        Candidate.objects.create(search=search, harness=climb.seed_harness, edits=[])
        Climb.objects.filter(pk=climb.pk).update(search=search)
        _say(
            climb,
            f"{len(edits)} edits proposed from reference transcripts and "
            f"{evidence.rollouts.count()} attempts on train tasks; none is believed before it "
            "is measured.",
            fence,
        )
    return search


def search_config(climb: Climb, search: Search, settings: SearchSettings) -> engine.SearchConfig:
    tasks = Task.objects.filter(version_id=climb.environment_version_id).order_by("key")
    return engine.SearchConfig(
        edits=tuple(Edit.from_json(row.data) for row in search.edits.all()),
        train=tuple(TaskRef(t.key, t.family) for t in tasks if t.split == Split.TRAIN),
        select=tuple(TaskRef(t.key, t.family) for t in tasks if t.split == Split.SELECT),
        seed=search.seed,
        blocks=settings.blocks,
        wave_blocks=settings.wave_blocks,
        tasks_per_block=settings.tasks_per_block,
        max_demonstrations=settings.max_demonstrations,
        race_candidates=settings.race_candidates,
        race_tasks=settings.race_tasks,
        certify_batch_pairs=settings.certify_batch_pairs,
        certify_max_pairs=settings.certify_max_pairs,
        alpha=settings.alpha,
    )


def _rows(climb: Climb, search: Search) -> list[engine.Row]:
    keys = {
        candidate.harness_id: engine.candidate_key(candidate.edits)
        for candidate in search.candidates.all()
    }
    rollouts = (
        Rollout.objects.filter(run__climb_run__climb=climb, run__climb_run__phase=Phase.SEARCH)
        .exclude(run__key__endswith=f"-{EVIDENCE}")
        .select_related("task", "run__rubric_version")
        .prefetch_related("verdicts")
    )
    left_out = left_out_of_search(climb)
    scores = rewards(rollouts, left_out)
    return [
        engine.Row(
            candidate=keys[rollout.harness_id],
            task=rollout.task.key,
            replicate=rollout.replicate,
            score=scores[rollout.pk],
            criteria={
                verdict.criterion: verdict.value
                for verdict in rollout.verdicts.all()
                if verdict.value is not None and verdict.criterion not in left_out
            },
        )
        for rollout in rollouts
    ]


def _ask(
    climb: Climb,
    rung: Rung,
    search: Search,
    action: engine.Run,
    config: engine.SearchConfig,
    fence: Fence,
) -> None:
    """One run with all that is missing."""
    phase = action.requests[0].phase
    harnesses = {
        request.candidate: _candidate_harness(search, config, request.bundle, phase)
        for request in {r.candidate: r for r in action.requests}.values()
    }
    tasks = {
        task.key: task
        for task in Task.objects.filter(
            version_id=climb.environment_version_id,
            key__in={request.task for request in action.requests},
        )
    }
    plan = [
        PlannedRollout(harnesses[r.candidate].pk, tasks[r.task], r.replicate)
        for r in action.requests
    ]
    number = climb.climb_runs.filter(phase=Phase.SEARCH).count()  # the evidence run is 0
    ask_for_run(
        climb=climb,
        rung=rung,
        key=f"search-{number}",
        label=LABELS[phase],
        purpose=PURPOSES[phase],
        plan=plan,
        # The same for all: both sides of a pair sample with the same seed.
        seed_parts=("search",),
        fence=fence,
    )


def _candidate_harness(
    search: Search, config: engine.SearchConfig, bundle: Sequence[int], phase: engine.Phase
) -> HarnessVersion:
    edits = [config.edits[i] for i in bundle]
    harness = apply_edits(load_harness(search.seed_harness), edits)
    version = store_harness(project_id=search.project_id, harness=harness)
    status = Candidate.Status.SCREENING if phase is engine.Phase.SCREEN else Candidate.Status.RACING
    Candidate.objects.update_or_create(
        search=search,
        harness=version,
        defaults={"edits": [edit.sha256 for edit in edits], "status": status},
    )
    return version


def _conclude(
    climb: Climb,
    search: Search,
    found: engine.Finished,
    config: engine.SearchConfig,
    fence: Fence,
    *,
    is_measured: bool,
) -> HarnessVersion:
    """Stores effects, certificate and verdict; returns the harness that goes to the sealed test."""
    judged = search.seed_harness
    if found.bundle:
        judged = _candidate_harness(search, config, found.bundle, engine.Phase.RACE)
    with transaction.atomic():
        hold_fence(fence)
        # Once: after a kill the same conclusion is reached again, and must not be told twice.
        if not Search.objects.filter(pk=search.pk, outcome={}).update(
            outcome={"reason": found.reason, "is_measured": is_measured}
        ):
            return judged if found.shipped else search.seed_harness
        _store_effects(search, found)
        for certificate in found.certificates:
            _store_certificate(climb, search, certificate, config)
        Candidate.objects.filter(search=search, harness=judged).update(
            status=(
                Candidate.Status.CERTIFIED
                if found.is_promotable
                else Candidate.Status.NOT_CERTIFIED
            )
        )
        _say(climb, _sentence(found, config), fence)
    # A bundle that its own fresh pairs do not favour is not worth a reading of the sealed test.
    return judged if found.shipped else search.seed_harness


@dataclass(frozen=True)
class Outcome:
    """Why a search ended as it did."""

    reason: str
    is_measured: bool
    """False: too few rollouts had a score to rank anything."""


def outcome_of(climb: Climb) -> Outcome:
    """Of the climb's finished search."""
    assert climb.search is not None
    return Outcome(**climb.search.outcome)


def _store_effects(search: Search, found: engine.Finished) -> None:
    rows = list(search.edits.all())
    for effect in found.effects:
        row = rows[effect.position]
        row.effect_mean, row.effect_sd = effect.mean, effect.sd
        row.probability_positive = effect.probability_positive
        row.rollouts_with, row.rollouts_without = effect.n_with, effect.n_without
        row.in_bundle = effect.position in found.shipped
    EditRow.objects.bulk_update(
        rows,
        [
            "effect_mean",
            "effect_sd",
            "probability_positive",
            "rollouts_with",
            "rollouts_without",
            "in_bundle",
        ],
    )


def _store_certificate(
    climb: Climb, search: Search, certificate: engine.Certificate, config: engine.SearchConfig
) -> None:
    test, comparison = certificate.test, certificate.comparison
    Comparison.objects.get_or_create(
        search=search,
        method="e_process",
        details__number=certificate.number,
        defaults={
            "project": climb.project,
            "split": Split.SELECT,
            "verdict": test.verdict.value,
            "pairs": test.valid,
            "coverage": test.coverage,
            "difference": comparison.mean,
            "low": comparison.low,
            "high": comparison.high,
            "e_value": test.evidence,
            "alpha": test.alpha,
            "details": {
                "number": certificate.number,
                "crossing_pair": test.crossing_pair,
                "threshold": test.threshold,
                "breached": list(certificate.breached),
                "edits": [config.edits[i].sha256 for i in certificate.bundle],
            },
        },
    )


def _sentence(found: engine.Finished, config: engine.SearchConfig) -> str:
    n_demonstrations = sum(config.edits[i].is_demonstration for i in found.bundle)
    others = len(found.bundle) - n_demonstrations
    parts = []
    if n_demonstrations:
        parts.append(f"{n_demonstrations} demonstrations")
    if others:
        parts.append(f"{others} other edit{'s' if others > 1 else ''}")
    what = " and ".join(parts) or "The seed"
    verb = "certified" if found.is_promotable else "not certified"
    return f"{what} on select tasks: {verb}, {found.reason}."


def _say(climb: Climb, text: str, fence: Fence) -> None:
    append(stream_id=climb.stream_id, items=[NewEvent("decision", {"text": text})], fence=fence)
