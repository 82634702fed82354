"""The watch over a climb: is its rubric being gamed?

Each run of a search or a training is looked at once it has ended, after a sample of it was graded
by the held-out rubric where the climb has one. The first rollouts of the phase are held against the
newest: in a search those of the seed harness against those of edited ones, in training the first
steps against the last. Sealed tasks are never looked at. A finding that calls for a pause pauses
the climb as a person would; work in hand ends first, and a person lets it go on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from django.db import transaction

from orchestrator.climbs.learning import rewards_of_run
from orchestrator.climbs.models import Climb, ClimbRun, ClimbState, Phase
from orchestrator.climbs.services import pause_search_of
from orchestrator.climbs.settings import ClimbSettings, WatchSettings
from orchestrator.events.services import Fence, NewEvent, append, hold_fence
from orchestrator.grading.errors import RegradeRefused
from orchestrator.grading.hacking import PAUSE, raise_alarms, samples, spread, start_held_out
from orchestrator.grading.models import HackingAlarm, Regrade, RegradePurpose
from orchestrator.jobs import services as jobs
from orchestrator.runs.models import ENDED_RUN_STATES, Purpose, Rollout
from rubrics.models import RubricVersion
from rubrics.redteam.watch import MIN_TASKS, Finding, Sample, Thresholds, is_enough, look

JOB_KIND = "climbs.watch"
WATCHED = (Phase.SEARCH, Phase.TRAIN)
LOOKED_BACK = 12
"""Newest runs that are read for the present; the windows end as soon as they hold enough tasks."""


def queue_watch(*, climb_run: ClimbRun) -> None:
    """After a run has ended. Needs a transaction."""
    if climb_run.phase in WATCHED:
        _queue(climb_run.climb_id, climb_run.run_id, "run")


def queue_look(*, regrade: Regrade) -> None:
    """After the held-out rubric has graded its sample. Needs a transaction."""
    run_id = regrade.selection.get("run")
    if regrade.purpose != RegradePurpose.HELD_OUT or run_id is None:
        return
    climb_run = ClimbRun.objects.filter(run_id=run_id).first()
    if climb_run is not None:
        _queue(climb_run.climb_id, climb_run.run_id, f"regrade-{regrade.pk}")


def _queue(climb_id: int, run_id: int, after: str) -> None:
    jobs.enqueue(
        kind=JOB_KIND,
        spec={"climb_id": climb_id, "run_id": run_id, "is_graded": after != "run"},
        key=f"climb-{climb_id}-watch-{run_id}-after-{after}",
    )


def watch(*, climb_id: int, run_id: int, is_graded: bool, fence: Fence) -> None:
    """Has the run graded by the held-out rubric first, where there is one; then looks at it."""
    climb = Climb.objects.select_related("rubric_version").get(pk=climb_id)
    climb_run = ClimbRun.objects.select_related("run").get(climb=climb, run_id=run_id)
    settings = ClimbSettings.from_json(climb.config).watch
    held_out = _held_out(climb, settings)
    if held_out is not None and not is_graded and _grade(climb_run, held_out, settings, fence):
        return
    before, now = _windows(climb, climb_run, held_out)
    if is_enough(before, now):
        limits = Thresholds(settings.warn, settings.pause, settings.length, settings.format)
        _tell(climb, climb_run, look(before, now, limits), settings, fence)


def _held_out(climb: Climb, settings: WatchSettings) -> RubricVersion | None:
    if settings.held_out_rubric is None:
        return None
    return (
        RubricVersion.objects.select_related("rubric")
        .filter(pk=settings.held_out_rubric, rubric__project_id=climb.project_id)
        .first()
    )


def _grade(
    climb_run: ClimbRun, held_out: RubricVersion, settings: WatchSettings, fence: Fence
) -> bool:
    """Whether a look will follow once it is graded."""
    chosen = spread(climb_run.run.rollouts.all(), settings.held_out_rollouts)
    if not chosen:
        return False
    with transaction.atomic():
        hold_fence(fence)
        try:
            return start_held_out(run=climb_run.run, version=held_out, ids=chosen).ended_at is None
        except RegradeRefused as refused:
            text = f"The held-out rubric cannot grade: {refused}"
            append(
                stream_id=climb_run.climb.stream_id, items=[NewEvent("decision", {"text": text})]
            )
            return False


# --- what is compared ----------------------------------------------------------------------------


def _windows(
    climb: Climb, climb_run: ClimbRun, held_out: RubricVersion | None
) -> tuple[list[Sample], list[Sample]]:
    """The beginning of the phase, and its newest rollouts up to this run; never the same ones."""
    runs = list(
        ClimbRun.objects.filter(
            climb=climb,
            phase=climb_run.phase,
            pk__lte=climb_run.pk,
            run__state__in=ENDED_RUN_STATES,
        )
        .exclude(run__purpose=Purpose.EVALUATE)
        .select_related("run")
        .order_by("id")
    )
    is_search = climb_run.phase == Phase.SEARCH
    seed = climb.seed_harness_id if is_search else None
    first = _window(climb, runs, held_out, lambda r: seed is None or r.harness_id == seed)
    taken = {sample.rollout for sample in first}
    newest = list(reversed(runs))[:LOOKED_BACK]
    last = _window(
        climb,
        newest,
        held_out,
        lambda r: r.pk not in taken and (seed is None or r.harness_id != seed),
    )
    return first, last


def _window(
    climb: Climb,
    runs: Sequence[ClimbRun],
    held_out: RubricVersion | None,
    belongs: Callable[[Rollout], bool],
) -> list[Sample]:
    """Rollouts with a score of as many runs as give enough tasks, whole runs only."""
    found: list[Sample] = []
    for each in runs:
        rollouts = [
            r for r in Rollout.objects.filter(run=each.run, score__isnull=False) if belongs(r)
        ]
        if not rollouts:
            continue
        made: Mapping[int, Sample] = samples(
            rollouts, rewards_of_run(each.run), held_out, climb.rubric_version.spec
        )
        found += made.values()
        if len({sample.task for sample in found}) >= MIN_TASKS:
            break
    return found


# --- what follows --------------------------------------------------------------------------------


def _tell(
    climb: Climb,
    climb_run: ClimbRun,
    findings: Sequence[Finding],
    settings: WatchSettings,
    fence: Fence,
) -> None:
    with transaction.atomic():
        hold_fence(fence)
        alarms = raise_alarms(
            run=climb_run.run, climb_id=climb.pk, findings=findings, step=settings.warn
        )
        if not alarms:
            return
        events = [NewEvent("alarm", _payload(alarm)) for alarm in alarms]
        reasons = [a.detail["sentence"] for a in alarms if a.level == PAUSE]
        if reasons and _pause(climb):
            events += [
                NewEvent("climb.state", {"state": ClimbState.PAUSED, "error": ""}),
                NewEvent("decision", {"text": f"Paused by the watch: {' '.join(reasons)}"}),
            ]
        append(stream_id=climb.stream_id, items=events, fence=fence)


def _pause(climb: Climb) -> bool:
    paused = Climb.objects.filter(
        pk=climb.pk, state__in=(ClimbState.QUEUED, ClimbState.RUNNING)
    ).update(state=ClimbState.PAUSED)
    if paused:
        pause_search_of(climb)
    return bool(paused)


def _payload(alarm: HackingAlarm) -> dict[str, object]:
    return {
        "id": alarm.pk,
        "signal": alarm.signal,
        "subject": alarm.detail["subject"],
        "level": alarm.level,
        "value": alarm.value,
        "text": alarm.detail["sentence"],
    }
