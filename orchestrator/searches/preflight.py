"""What must hold before a search spends its budget: the scorer works and repeats itself.

A transcript is frozen (that of a scored rollout, or of one that is run for this) and graded twice.
A judge that does not answer, code that fails, and a scorer that gives two scores for the same
transcript are reasons to refuse; no score of it is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice

from optimizer.models import Search
from optimizer.tasks import TaskRef, passes
from orchestrator.environments.models import Split, Task
from orchestrator.events.services import Fence
from orchestrator.judging.services import grading_services
from orchestrator.runs.grading import needs_services
from orchestrator.runs.models import Purpose, Rollout, RolloutState, Run
from orchestrator.runs.services import PlannedRollout
from orchestrator.runs.transcripts import transcript_of
from orchestrator.searches.asking import ask_for_run
from orchestrator.searches.settings import PREFLIGHT_ROLLOUTS, SearchSettings
from rubrics.aggregate import aggregate
from rubrics.codec import from_json
from rubrics.grade import grade, grade_async, is_group
from rubrics.grade_group import held
from rubrics.types import RubricSpec, State, Transcript, Verdict

PHASE = "preflight"
AGAIN = "recheck"
"""Phase of a preflight that is repeated once somebody has mended what was wrong with the last."""
SAME = 1e-9


def check_scorer(*, search: Search, settings: SearchSettings, fence: Fence) -> str | Run | None:
    """Why the search is refused (empty: it is not), or the run that it has to wait for.

    None: there is nothing to check on, and the climb above has measured by the same rubric.
    """
    frozen = _scored(search)
    if frozen is None and not settings.is_part:
        run = _watch(search, settings, fence)
        if not run.has_ended:
            return run
        frozen = _scored(search)
        if frozen is None:
            return _no_score(run)
    if frozen is None:
        return None
    assert search.rubric_version is not None
    return compare_gradings(
        search.project_id, from_json(search.rubric_version.spec), transcript_of(frozen)
    )


def _scored(search: Search) -> Rollout | None:
    """Of this search where a judge has to prove that it answers today; else any will do."""
    assert search.rubric_version is not None
    found = Rollout.objects.filter(
        run__environment_version=search.environment_version_id,
        run__rubric_version=search.rubric_version_id,
        state=RolloutState.SCORED,
    ).select_related("task", "run__rubric_version")
    own = found.filter(run__search_run__search=search).order_by("id").first()
    if own is not None or needs_services(from_json(search.rubric_version.spec)):
        return own
    return found.exclude(task__split=Split.TEST).order_by("-id").first() or (
        found.order_by("-id").first()
    )


def _watch(search: Search, settings: SearchSettings, fence: Fence) -> Run:
    tasks = {
        task.key: task
        for task in Task.objects.filter(
            version_id=search.environment_version_id, split=Split.TRAIN
        ).order_by("key")
    }
    refs = [TaskRef(task.key, task.family) for task in tasks.values()]
    chosen = list(islice(passes(refs, search.seed, PHASE), min(PREFLIGHT_ROLLOUTS, len(refs))))
    before = (
        search.search_runs.filter(
            phase__in=(PHASE, AGAIN), run__ended_at__lt=search.resumed_at
        ).count()
        if search.resumed_at
        else 0
    )
    return ask_for_run(
        search=search,
        settings=settings,
        key=f"{PHASE}-{before}" if before else PHASE,
        phase=AGAIN if before else PHASE,
        label="Preflight",
        purpose=Purpose.OPTIMISE,
        plan=[PlannedRollout(search.seed_harness_id, tasks[ref.key]) for ref in chosen],
        seed_part=PHASE,
        fence=fence,
    )


def _no_score(run: Run) -> str:
    first = run.rollouts.exclude(message="").order_by("id").first()
    why = first.message if first is not None else run.error or "no reason was recorded"
    return f"Preflight: no rollout of the seed harness could be scored. {why}"


def compare_gradings(project_id: int, spec: RubricSpec, transcript: Transcript) -> str:
    """Why a scorer cannot be relied on; empty if it can. Blocks while judges are asked."""
    first, second = (_graded(project_id, spec, transcript) for _ in range(2))
    alone = {criterion.id for criterion in spec.criteria if not is_group(criterion)}
    names = {criterion.id: criterion.label for criterion in spec.criteria}
    for verdict in first:
        if verdict.criterion in alone and verdict.state is State.ERRORED:
            return f"Preflight: {names[verdict.criterion]} cannot be graded. {verdict.reason}"
    values = {verdict.criterion: verdict.value for verdict in second}
    for verdict in first:
        again = values.get(verdict.criterion)
        if verdict.criterion in alone and not _same(verdict.value, again):
            return (
                f"Preflight: {names[verdict.criterion]} gave the same transcript two scores, "
                f"{_shown(verdict.value)} and {_shown(again)}. Mend the criterion first: a search "
                "would climb on its noise."
            )
    if not _same(aggregate(spec, first).value, aggregate(spec, second).value):
        return "Preflight: the rubric gave the same transcript two scores."
    return ""


def _graded(project_id: int, spec: RubricSpec, transcript: Transcript) -> Sequence[Verdict]:
    if not needs_services(spec):
        return grade(spec, transcript)

    async def ask() -> Sequence[Verdict]:
        async with grading_services(project_id) as services:
            known = held(spec, transcript)
            return await grade_async(spec, transcript, services=services, known=known)

    return asyncio.run(ask())


def _same(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return abs(a - b) <= SAME


def _shown(value: float | None) -> str:
    return "none" if value is None else f"{value:g}"
