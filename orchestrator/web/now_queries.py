"""The Overview's two questions: what runs now, and what needs me. A fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Max, Min, Q
from django.urls import reverse
from django.utils import timezone

from optimizer.models import Proposal, Search, SearchState
from orchestrator.climbs.models import Climb, ClimbState
from orchestrator.grading.hacking import open_alarms
from orchestrator.jobs.models import Job, JobState
from orchestrator.proposing.names import HANDED_IN
from orchestrator.runs.models import Rollout, RolloutState, Run, RunState
from orchestrator.web.diagnosis import Diagnosis, LiveRun, of_run
from orchestrator.web.queries import LIVE_CLIMBS, LIVE_SEARCHES
from training.models import TrainingJob, TrainingState

SHOWN = 8
"""Runs in progress in the list; the rest is counted."""
FRESH = timedelta(hours=24)
"""What failed longer ago is no news."""
FAILURES = 4


@dataclass(frozen=True)
class Button:
    word: str
    url: str
    icon: str = "next"
    is_post: bool = False
    confirm: str = ""
    is_danger: bool = False


@dataclass(frozen=True)
class Work:
    """Something in progress."""

    kind: str
    icon: str
    name: str
    url: str
    state: str
    progress: float | None
    """0 to 1."""
    sentence: str
    since: datetime | None
    is_stuck: bool = False


@dataclass(frozen=True)
class Need:
    """Something that waits for a person."""

    look: str
    """bad, err, warn or trail"""
    icon: str
    title: str
    sentence: str
    buttons: Sequence[Button] = ()


@dataclass(frozen=True)
class Now:
    works: Sequence[Work]
    n_more: int
    """Runs in progress that are not listed."""
    needs: Sequence[Need]


def now_of(project_id: int, *, to_review: int, can_edit: bool) -> Now:
    """`to_review`: items that the person could take."""
    at = timezone.now()
    runs = list(
        Run.objects.filter(project_id=project_id, state__in=[RunState.QUEUED, RunState.RUNNING])
        .select_related(
            "environment_version__environment", "job", "climb_run", "search_run", "training_run"
        )
        .order_by("pk")
    )
    figures = _rollout_figures(runs)
    told = _diagnoses(runs, figures, at)
    climbs = list(
        Climb.objects.filter(project_id=project_id, state__in=LIVE_CLIMBS).prefetch_related("rungs")
    )
    searches = list(
        Search.objects.filter(
            project_id=project_id,
            state__in=LIVE_SEARCHES,
            climb=None,
            rung=None,
            stream__isnull=False,
        )
    )
    trainings = list(
        TrainingJob.objects.filter(
            project_id=project_id, state__in=[TrainingState.QUEUED, TrainingState.RUNNING]
        )
    )
    waits = _waits(runs, told)
    works = [
        *_climbs(climbs, waits),
        *_searches(searches, waits),
        *_trainings(trainings, waits),
    ]
    listed = sorted(runs, key=lambda run: (not told[run.pk].is_stuck, run.pk))[:SHOWN]
    works += [
        Work(
            "Run",
            "runs",
            run.label or run.get_purpose_display(),
            reverse("web:run", args=[project_id, run.pk]),
            run.state,
            _share(figures.get(run.pk)),
            told[run.pk].sentence,
            run.started_at or run.created_at,
            told[run.pk].is_stuck,
        )
        for run in listed
    ]
    needs = [
        *_stuck(project_id, runs, told, can_edit),
        *_alarms(project_id),
        *_paused(climbs, trainings, can_edit),
        *_approvals(searches),
        *_proposals(project_id),
        *_reviews(project_id, to_review),
        *_failures(project_id, at),
    ]
    return Now(works=works, n_more=len(runs) - len(listed), needs=needs)


# --- what runs now ----------------------------------------------------------------------------


def _rollout_figures(runs: Iterable[Run]) -> dict[int, dict[str, Any]]:
    rows = (
        Rollout.objects.filter(run__in=list(runs))
        .order_by()
        .values("run_id")
        .annotate(
            planned=Count("pk"),
            pending=Count("pk", filter=Q(state=RolloutState.PENDING)),
            running=Count("pk", filter=Q(state=RolloutState.RUNNING)),
            judging=Count("pk", filter=Q(state=RolloutState.JUDGING)),
            oldest=Min("started_at", filter=Q(state=RolloutState.RUNNING)),
            last=Max("ended_at"),
        )
    )
    return {row["run_id"]: dict(row) for row in rows}


def _share(row: dict[str, Any] | None) -> float | None:
    """Of its rollouts that are over."""
    if row is None:
        return None
    still = int(row["pending"] + row["running"] + row["judging"])
    return 1.0 - still / int(row["planned"])


def _diagnoses(
    runs: Sequence[Run], figures: dict[int, dict[str, Any]], at: datetime
) -> dict[int, Diagnosis]:
    workers = (
        Job.objects.filter(state=JobState.RUNNING, lease_until__gt=at)
        .values("worker")
        .distinct()
        .count()
    )
    return {
        run.pk: of_run(_live(run, figures.get(run.pk, {})), now=at, workers=workers) for run in runs
    }


def _live(run: Run, row: dict[str, Any]) -> LiveRun:
    job = run.job
    is_taken = job is not None and job.state == JobState.RUNNING
    return LiveRun(
        environment=str(run.environment_version),
        is_started=run.state == RunState.RUNNING or is_taken,
        asked_at=run.created_at,
        pending=row.get("pending", 0),
        running=row.get("running", 0),
        judging=row.get("judging", 0),
        oldest_at=row.get("oldest"),
        last_ended_at=row.get("last"),
        lease_until=job.lease_until if job is not None and is_taken else None,
        is_cancelling=job is not None and job.cancel_requested,
    )


Waits = dict[tuple[str, int], str]
"""What a climb, search or training waits for, by the run that it asked for last."""


def _waits(runs: Iterable[Run], told: dict[int, Diagnosis]) -> Waits:
    found: Waits = {}
    for run in runs:
        for kind, owner in (
            ("climb", "climb_id"),
            ("search", "search_id"),
            ("training", "training_job_id"),
        ):
            link = getattr(run, f"{kind}_run", None)
            if link is not None:
                found[kind, getattr(link, owner)] = told[run.pk].sentence
    return found


def _both(doing: str, waits: str | None) -> str:
    return f"{doing}; {waits}" if doing and waits else doing or waits or ""


def _climbs(climbs: Iterable[Climb], waits: Waits) -> list[Work]:
    found = []
    for climb in climbs:
        if climb.state == ClimbState.PAUSED:
            continue
        rung = next((r for r in climb.rungs.all() if r.state == "running"), None)
        found.append(
            Work(
                "Climb",
                "ladder",
                climb.name,
                reverse("web:climb", args=[climb.project_id, climb.pk]),
                climb.state,
                rung.progress if rung else None,
                _both(
                    (rung.doing if rung else "") or climb.get_phase_display(),
                    waits.get(("climb", climb.pk)),
                ),
                climb.started_at or climb.created_at,
            )
        )
    return found


def _searches(searches: Iterable[Search], waits: Waits) -> list[Work]:
    """Those that stand alone; a climb tells of its own."""
    own = (SearchState.QUEUED, SearchState.RUNNING)
    return [
        Work(
            "Search",
            "optimise",
            str(search),
            reverse("web:search", args=[search.project_id, search.pk]),
            search.state,
            search.progress,
            _both(search.doing or search.get_phase_display(), waits.get(("search", search.pk))),
            search.started_at or search.created_at,
        )
        for search in searches
        if search.state in own
    ]


def _trainings(jobs: Iterable[TrainingJob], waits: Waits) -> list[Work]:
    return [
        Work(
            "Training",
            "train",
            job.name or f"training job {job.pk}",
            reverse("web:training_job", args=[job.project_id, job.pk]),
            job.state,
            job.step / job.total_steps if job.total_steps else None,
            _both(
                f"step {job.step} of {job.total_steps}" if job.device else "waits for a device",
                waits.get(("training", job.pk)),
            ),
            job.device_since,
        )
        for job in jobs
        if not job.pause_reason
    ]


# --- what needs me ----------------------------------------------------------------------------


def _stuck(
    project_id: int, runs: Sequence[Run], told: dict[int, Diagnosis], can_edit: bool
) -> list[Need]:
    found = []
    for run in runs:
        if not told[run.pk].is_stuck:
            continue
        buttons = [Button("Look", reverse("web:run", args=[project_id, run.pk]))]
        if can_edit:
            buttons.append(
                Button(
                    "Cancel the run",
                    reverse("web:run_cancel", args=[project_id, run.pk]),
                    "stop",
                    is_post=True,
                    confirm="Cancel this run? Rollouts that have a score keep it.",
                    is_danger=True,
                )
            )
        name = run.label or run.get_purpose_display()
        found.append(Need("err", "alert", f"Stuck: {name}", told[run.pk].sentence, tuple(buttons)))
    return found


def _alarms(project_id: int) -> list[Need]:
    alarms = open_alarms(project_id)
    if not alarms:
        return []
    pauses = sum(alarm.level == "pause" for alarm in alarms)
    plural = "" if len(alarms) == 1 else "s"
    sentence = "A rubric may be gamed" + (
        f"; {pauses} of them paused a climb." if pauses else ". Nothing was stopped."
    )
    look = "bad" if pauses else "warn"
    url = reverse("web:climbs", args=[project_id])
    return [
        Need(look, "alert", f"{len(alarms)} alarm{plural}", sentence, (Button("Read them", url),))
    ]


def _paused(climbs: Iterable[Climb], jobs: Iterable[TrainingJob], can_edit: bool) -> list[Need]:
    found = []
    for climb in climbs:
        if climb.state != ClimbState.PAUSED:
            continue
        url = reverse("web:climb", args=[climb.project_id, climb.pk])
        buttons = [Button("Look", url)]
        if can_edit:
            resume = reverse("web:climb_action", args=[climb.project_id, climb.pk, "resume"])
            buttons.append(Button("Resume", resume, "play", is_post=True))
        sentence = f"{climb.name} stands still in: {climb.get_phase_display().lower()}."
        found.append(Need("warn", "pause", "Climb paused", sentence, tuple(buttons)))
    for job in jobs:
        if not job.pause_reason:
            continue
        buttons = [Button("Look", reverse("web:training_job", args=[job.project_id, job.pk]))]
        if can_edit:
            resume = reverse("web:training_action", args=[job.project_id, job.pk, "resume"])
            buttons.append(Button("Resume", resume, "play", is_post=True))
        title = f"Training paused: {job.name or job.pk}"
        found.append(Need("warn", "pause", title, job.pause_reason, tuple(buttons)))
    return found


def _approvals(searches: Iterable[Search]) -> list[Need]:
    return [
        Need(
            "trail",
            "flag",
            f"{search} waits for your approval",
            str(search.outcome.get("reason") or "A better harness is ready to be released."),
            (Button("Decide", reverse("web:search", args=[search.project_id, search.pk])),),
        )
        for search in searches
        if search.state == SearchState.AWAITING_APPROVAL
    ]


def _proposals(project_id: int) -> list[Need]:
    rows = (
        Proposal.objects.filter(
            search__project_id=project_id,
            search__state__in=[SearchState.RUNNING, SearchState.PAUSED],
            proposer=HANDED_IN,
            state=Proposal.State.WAITING,
        )
        .select_related("search")
        .order_by("pk")
    )
    return [
        Need(
            "trail",
            "edit",
            f"{each.search} asks for an edit",
            "A proposal is to be handed in by a person or an agent; the search waits for it.",
            (
                Button(
                    "Answer",
                    reverse("web:search_proposal", args=[project_id, each.search_id, each.pk]),
                ),
            ),
        )
        for each in rows[:FAILURES]
    ]


def _reviews(project_id: int, to_review: int) -> list[Need]:
    if not to_review:
        return []
    plural = "" if to_review == 1 else "s"
    button = Button("Review", reverse("web:review", args=[project_id]))
    title = f"{to_review} rollout{plural} to review"
    return [Need("trail", "review", title, "They wait for your verdict.", (button,))]


def _failures(project_id: int, at: datetime) -> list[Need]:
    """The newest of the last day, of every kind."""
    recent = {"project_id": project_id, "ended_at__gt": at - FRESH}
    runs = Run.objects.filter(
        state__in=[RunState.FAILED, RunState.COMPLETED_UNSCORED], **recent
    ).order_by("-ended_at")
    climbs = Climb.objects.filter(state=ClimbState.FAILED, **recent).order_by("-ended_at")
    found: list[tuple[datetime, Need]] = []
    for climb in climbs[:FAILURES]:
        button = Button("Look", reverse("web:climb", args=[project_id, climb.pk]))
        need = Need("err", "alert", f"Climb failed: {climb.name}", climb.error, (button,))
        found.append((climb.ended_at or at, need))
    for run in runs[:FAILURES]:
        word = "Run failed" if run.state == RunState.FAILED else "Too few scored"
        button = Button("Look", reverse("web:run", args=[project_id, run.pk]))
        name = run.label or run.get_purpose_display()
        need = Need("err", "alert", f"{word}: {name}", run.error, (button,))
        found.append((run.ended_at or at, need))
    return [need for _, need in sorted(found, key=lambda item: item[0], reverse=True)[:FAILURES]]
