"""The ladder's state machine: which rung next, and when to stop.

`advance` does what the climb's phase asks for and returns as soon as it waits for something: a run
or a training job that will call again when it ends. Whatever it asks for carries a key made of
climb and phase, so that the same question after a kill finds the same run. Every change holds the
fence of the advancing job.
"""

from __future__ import annotations

from collections.abc import Callable

from django.db import transaction
from django.utils import timezone

from optimizer.models import HarnessVersion
from optimizer.plateau import Next
from orchestrator.climbs import harness_search, weights
from orchestrator.climbs.asking import ask_for_run
from orchestrator.climbs.conclusions import conclude_rung, conclude_without_test
from orchestrator.climbs.harness_search import SearchFailed
from orchestrator.climbs.models import (
    ENDED_CLIMB_STATES,
    Climb,
    ClimbState,
    Phase,
    Rung,
    RungKind,
    RungState,
)
from orchestrator.climbs.services import fail_climb
from orchestrator.climbs.turns import newest, turn
from orchestrator.environments.models import Split, Task
from orchestrator.events.services import Fence, NewEvent, append, hold_fence
from orchestrator.runs.models import Purpose, Run, RunState
from orchestrator.runs.services import PlannedRollout
from orchestrator.searches.services import SearchRefused
from training.models import TrainingJob


def advance(*, climb_id: int, fence: Fence) -> None:
    """Moves the climb as far as it goes without waiting. Safe to call at any time."""
    while True:
        climb = Climb.objects.select_related("project", "seed_harness", "model", "search").get(
            pk=climb_id
        )
        if climb.has_ended or climb.state == ClimbState.PAUSED or climb.phase == Phase.DONE:
            return
        _mark_started(climb, fence)
        if not STEPS[Phase(climb.phase)](climb, fence):
            return


def _mark_started(climb: Climb, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        started = Climb.objects.filter(pk=climb.pk, state=ClimbState.QUEUED).update(
            state=ClimbState.RUNNING, started_at=timezone.now()
        )
        if started:
            append(
                stream_id=climb.stream_id,
                items=[NewEvent("climb.state", {"state": ClimbState.RUNNING, "error": ""})],
                fence=fence,
            )


def _baseline(climb: Climb, fence: Fence) -> bool:
    rung = start_rung(climb, RungKind.BASELINE, climb.seed_harness, fence)
    run = _test_run(climb, rung, climb.seed_harness, Purpose.BASELINE, fence)
    if not run.has_ended:
        return False
    if _is_lost(climb, run, fence):
        return False
    if rung.state != RungState.DONE:  # a kill may lie between the verdict and the next phase
        conclude_rung(rung=rung, run=run, base=None, fence=fence)
    return _enter(climb, Phase.SEARCH, fence)


def _search(climb: Climb, fence: Fence) -> bool:
    rung = start_rung(climb, RungKind.HARNESS, None, fence)
    try:
        found = harness_search.advance_search(
            climb=climb, rung=rung, base=_best_harness(climb, rung), fence=fence
        )
    except (SearchFailed, SearchRefused) as exc:
        with transaction.atomic():
            hold_fence(fence)
            fail_climb(climb=climb, error=str(exc))
        return False
    if found is None:
        return False
    with transaction.atomic():
        hold_fence(fence)
        Rung.objects.filter(pk=rung.pk).update(harness=found)
    return _enter(climb, Phase.HARNESS_TEST, fence)


def _harness_test(climb: Climb, fence: Fence) -> bool:
    rung = start_rung(climb, RungKind.HARNESS, None, fence)
    assert rung.harness is not None  # the search ends with one
    if rung.harness_id == _best_harness(climb, rung).pk:
        if rung.state != RungState.DONE:
            assert climb.search is not None
            outcome = climb.search.outcome
            conclude_without_test(
                rung=rung,
                verdict="inconclusive" if outcome["is_measured"] else "infrastructure",
                sentence=f"Harness: the seed stays; {outcome['reason']}.",
                fence=fence,
            )
        return _turn(climb, fence)
    run = _test_run(climb, rung, rung.harness, Purpose.EVALUATE, fence)
    if not run.has_ended:
        return False
    if _is_lost(climb, run, fence):
        return False
    if rung.state != RungState.DONE:
        conclude_rung(rung=rung, run=run, base=_base_of(climb, rung), fence=fence)
    return _turn(climb, fence)


def _turn(climb: Climb, fence: Fence) -> bool:
    """After a harness rung: another one, the weights, or the end."""
    chosen = turn(climb, fence)
    if chosen is Next.STOP:
        return _finish(climb, fence)
    return _enter(climb, Phase.TRAIN if chosen is Next.WEIGHTS else Phase.SEARCH, fence)


def _train(climb: Climb, fence: Fence) -> bool:
    best = _best_harness(climb, newest(climb, RungKind.ECHO))
    rung = start_rung(climb, RungKind.ECHO, best, fence)
    job: TrainingJob | None = weights.ask_for_training(climb=climb, rung=rung, fence=fence)
    if job is None:
        return False
    with transaction.atomic():
        hold_fence(fence)
        Rung.objects.filter(pk=rung.pk).update(
            adapter_name=weights.final_adapter_name(job), adapter_sha256=job.adapter_sha256
        )
    return _enter(climb, Phase.ECHO_TEST, fence)


def _echo_test(climb: Climb, fence: Fence) -> bool:
    rung = start_rung(climb, RungKind.ECHO, None, fence)
    assert rung.harness is not None
    assert climb.training_job is not None
    run = _test_run(
        climb,
        rung,
        rung.harness,
        Purpose.EVALUATE,
        fence,
        adapter_path=climb.training_job.adapter_path,
    )
    if not run.has_ended:
        return False
    if _is_lost(climb, run, fence):
        return False
    base = _base_of(climb, rung)
    if rung.state != RungState.DONE:
        conclude_rung(rung=rung, run=run, base=base, fence=fence)
    return _finish(climb, fence)


STEPS: dict[Phase, Callable[[Climb, Fence], bool]] = {
    Phase.BASELINE: _baseline,
    Phase.SEARCH: _search,
    Phase.HARNESS_TEST: _harness_test,
    Phase.TRAIN: _train,
    Phase.ECHO_TEST: _echo_test,
}


def start_rung(climb: Climb, kind: str, harness: HarnessVersion | None, fence: Fence) -> Rung:
    """The newest rung of the kind."""
    rung = newest(climb, kind)
    with transaction.atomic():
        hold_fence(fence)
        Rung.objects.filter(pk=rung.pk, state=RungState.PENDING).update(
            state=RungState.RUNNING, started_at=timezone.now()
        )
        if harness is not None:
            Rung.objects.filter(pk=rung.pk).update(harness=harness)
    return Rung.objects.select_related("climb", "harness", "test_run").get(pk=rung.pk)


def _test_run(
    climb: Climb,
    rung: Rung,
    harness: HarnessVersion,
    purpose: str,
    fence: Fence,
    adapter_path: str = "",
) -> Run:
    """The one reading of the sealed test split that this rung's claim is allowed."""
    replicates = int(climb.config.get("test_replicates", 1))
    tasks = Task.objects.filter(version_id=climb.environment_version_id, split=Split.TEST)
    plan = [
        PlannedRollout(harness_id=harness.pk, task=task, replicate=replicate)
        for replicate in range(replicates)
        for task in tasks
    ]
    run = ask_for_run(
        climb=climb,
        rung=rung,
        key="test",
        label=f"{rung.get_kind_display()}, sealed test",
        purpose=purpose,
        plan=plan,
        # One seed for all rungs: the comparison is paired on task and seed.
        seed_parts=("test",),
        adapter_name=rung.adapter_name if adapter_path else "",
        adapter_path=adapter_path,
        fence=fence,
    )
    Rung.objects.filter(pk=rung.pk, test_run__isnull=True).update(test_run=run)
    return run


def _base_of(climb: Climb, rung: Rung) -> Rung | None:
    """What the rung stands on: the newest below it that was measured and is not worse."""
    return (
        climb.rungs.select_related("test_run", "harness")
        .filter(index__lt=rung.index, test_run__isnull=False)
        .exclude(verdict="regressed")
        .order_by("-index")
        .first()
    )


def _best_harness(climb: Climb, rung: Rung) -> HarnessVersion:
    """What a search starts from and weights are trained under: that of the newest harness rung
    below which is not proven worse.
    """
    below = climb.rungs.select_related("harness").filter(
        index__lt=rung.index, kind=RungKind.HARNESS, harness__isnull=False
    )
    best = below.exclude(verdict="regressed").order_by("-index").first()
    return climb.seed_harness if best is None or best.harness is None else best.harness


def _is_lost(climb: Climb, run: Run, fence: Fence) -> bool:
    """Fails the climb when a run it stands on gave no result at all."""
    if run.state not in (RunState.FAILED, RunState.CANCELLED):
        return False
    with transaction.atomic():
        hold_fence(fence)
        fail_climb(climb=climb, error=f"{run.label} {run.get_state_display()}: {run.error}".strip())
    return True


def _enter(climb: Climb, phase: Phase, fence: Fence) -> bool:
    with transaction.atomic():
        hold_fence(fence)
        Climb.objects.filter(pk=climb.pk).update(phase=phase)
        append(stream_id=climb.stream_id, items=[NewEvent("phase", {"phase": phase})], fence=fence)
    return True


def _finish(climb: Climb, fence: Fence) -> bool:
    with transaction.atomic():
        hold_fence(fence)
        # Pausing lets work in flight end: a pause that comes with the last verdict changes nothing.
        completed = (
            Climb.objects.filter(pk=climb.pk)
            .exclude(state__in=ENDED_CLIMB_STATES)
            .update(phase=Phase.DONE, state=ClimbState.COMPLETED, ended_at=timezone.now())
        )
        if not completed:
            return False
        append(
            stream_id=climb.stream_id,
            items=[
                NewEvent("phase", {"phase": Phase.DONE}),
                NewEvent("climb.state", {"state": ClimbState.COMPLETED, "error": ""}),
            ],
            fence=fence,
        )
    return False
