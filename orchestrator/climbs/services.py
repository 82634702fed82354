"""What people do to climbs: start, pause, resume, cancel.

A climb moves by short `climbs.advance` jobs. Whoever ends something that a climb waits for queues
the next one under a key that names the event, so that no event moves a climb twice.
"""

from __future__ import annotations

from django.db import transaction
from django.utils import timezone

from optimizer.models import HarnessVersion, SearchState
from orchestrator.agents.models import ModelEndpoint
from orchestrator.climbs.models import (
    ENDED_CLIMB_STATES,
    Climb,
    ClimbState,
    Rung,
    RungKind,
    RungState,
)
from orchestrator.climbs.settings import ClimbSettings
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.events.services import Fence, NewEvent, append, create_stream, hold_fence
from orchestrator.grading.hacking import acknowledge_all
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.runs.models import ENDED_RUN_STATES
from orchestrator.runs.seeds import derive_seed
from orchestrator.searches.ending import end_cancelled, fail_search, pause_for
from orchestrator.searches.services import resume
from orchestrator.trainings.alarms import acknowledge_all as acknowledge_training
from orchestrator.trainings.scheduling import schedule
from orchestrator.trainings.services import cancel_training
from rubrics.models import RubricVersion

LADDER = (RungKind.BASELINE, RungKind.HARNESS, RungKind.ECHO)


class ClimbError(ValueError):
    """The climb is not in a state in which that can be done; the message says which it is."""


def start_climb(
    *,
    actor: User,
    project: Project,
    name: str,
    environment_version: EnvironmentVersion,
    rubric_version: RubricVersion,
    model: ModelEndpoint,
    seed_harness: HarnessVersion,
    settings: ClimbSettings,
) -> Climb:
    require(actor, project, Role.EDITOR)
    check_held_out(project, rubric_version, settings.watch.held_out_rubric)
    with transaction.atomic():
        climb = Climb.objects.create(
            project=project,
            stream=create_stream(project=project, kind="climb"),
            name=name,
            environment_version=environment_version,
            rubric_version=rubric_version,
            model=model,
            seed_harness=seed_harness,
            config=settings.to_json(),
            seed=derive_seed("climb", environment_version.sha256, seed_harness.sha256),
        )
        Rung.objects.bulk_create(
            Rung(climb=climb, index=index, kind=kind) for index, kind in enumerate(LADDER)
        )
        queue_advance(climb_id=climb.pk, after="start")
    return climb


def check_held_out(project: Project, climbed: RubricVersion, held_out: int | None) -> None:
    """Raises ClimbError for a held-out rubric that is none."""
    if held_out is None:
        return
    version = RubricVersion.objects.filter(pk=held_out, rubric__project=project).first()
    if version is None:
        raise ClimbError(f"The project has no rubric version {held_out} to hold out.")
    if version.rubric_id == climbed.rubric_id:
        raise ClimbError("A held-out rubric is another one than the rubric that is climbed on.")


def queue_advance(*, climb_id: int, after: str) -> None:
    """Moves the climb once for the event named by `after`."""
    jobs.enqueue(
        kind="climbs.advance",
        spec={"climb_id": climb_id},
        key=f"climb-{climb_id}-after-{after}",
        max_attempts=10,
    )


def pause_climb(*, actor: User, climb: Climb) -> None:
    """Work in flight ends first: the run under way, or the training step."""
    require(actor, climb.project, Role.EDITOR)
    with transaction.atomic():
        _change_state(
            climb, (ClimbState.QUEUED, ClimbState.RUNNING), ClimbState.PAUSED, "cannot be paused"
        )
        pause_search_of(climb)


def pause_climb_for(*, climb: Climb, reason: str, fence: Fence | None) -> None:
    """Switchback's own pause: as a person's, with a reason that the ladder shows."""
    with transaction.atomic():
        if fence is not None:
            hold_fence(fence)
        paused = Climb.objects.filter(
            pk=climb.pk, state__in=(ClimbState.QUEUED, ClimbState.RUNNING)
        ).update(state=ClimbState.PAUSED)
        if not paused:
            return
        pause_search_of(climb)
        events = [
            NewEvent("climb.state", {"state": ClimbState.PAUSED, "error": ""}),
            NewEvent("decision", {"text": f"Paused: {reason}"}),
        ]
        append(stream_id=climb.stream_id, items=events, fence=fence)


def resume_climb(*, actor: User, climb: Climb) -> None:
    """Acknowledges the alarms that it was paused for, as whoever lets it go on has seen them."""
    require(actor, climb.project, Role.EDITOR)
    with transaction.atomic():
        acknowledge_all(actor=actor, climb_id=climb.pk)
        if climb.training_job is not None:
            acknowledge_training(actor=actor, job=climb.training_job)
        climb.refresh_from_db(fields=["started_at"])
        state = ClimbState.RUNNING if climb.started_at else ClimbState.QUEUED
        _change_state(climb, (ClimbState.PAUSED,), state, "is not paused")
        if climb.search is not None and climb.search.state == SearchState.PAUSED:
            resume(search=climb.search)
        queue_advance(climb_id=climb.pk, after=f"resume-{timezone.now().timestamp():.6f}")
        schedule()  # its training may have given its device back


def cancel_climb(*, actor: User, climb: Climb) -> None:
    """Ends the climb; its run and training job are cancelled, what was measured stays."""
    require(actor, climb.project, Role.EDITOR)
    with transaction.atomic():
        _change_state(
            climb,
            (ClimbState.QUEUED, ClimbState.RUNNING, ClimbState.PAUSED),
            ClimbState.CANCELLED,
            "has ended",
        )
        Climb.objects.filter(pk=climb.pk).update(ended_at=timezone.now())
        climb.rungs.filter(state=RungState.RUNNING).update(
            state=RungState.FAILED, doing="cancelled", ended_at=timezone.now()
        )
        if climb.search is not None:
            end_cancelled(search=climb.search)
    for climb_run in climb.climb_runs.exclude(run__state__in=ENDED_RUN_STATES).select_related(
        "run__job"
    ):
        if climb_run.run.job is not None:
            jobs.cancel(job=climb_run.run.job)
    if climb.training_job is not None:
        cancel_training(actor=actor, job=climb.training_job)


def pause_search_of(climb: Climb) -> None:
    """Needs a transaction. The search asks for nothing more while the climb is paused."""
    if climb.search is not None:
        pause_for(search=climb.search, reason="")


def fail_climb(*, climb: Climb, error: str) -> None:
    """Needs a transaction. The rung under way fails with the same reason."""
    changed = (
        Climb.objects.filter(pk=climb.pk)
        .exclude(state__in=ENDED_CLIMB_STATES)
        .update(state=ClimbState.FAILED, error=error, ended_at=timezone.now())
    )
    if not changed:
        return
    climb.rungs.filter(state=RungState.RUNNING).update(
        state=RungState.FAILED, doing="", sentence=error, ended_at=timezone.now()
    )
    append(
        stream_id=climb.stream_id,
        items=[NewEvent("climb.state", {"state": ClimbState.FAILED, "error": error})],
    )
    if climb.search is not None:
        fail_search(search=climb.search, error=error)


def _change_state(climb: Climb, allowed: tuple[str, ...], state: str, refusal: str) -> None:
    with transaction.atomic():
        changed = Climb.objects.filter(pk=climb.pk, state__in=allowed).update(state=state)
        climb.refresh_from_db()
        if not changed:
            raise ClimbError(f"{climb.name} is {climb.get_state_display()}; it {refusal}.")
        append(
            stream_id=climb.stream_id,
            items=[NewEvent("climb.state", {"state": state, "error": ""})],
        )
