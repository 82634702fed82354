"""What people do to trainings: start, pause, resume, cancel, move in the queue, set quotas."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from django.conf import settings as django_settings
from django.db import transaction
from django.utils import timezone

from optimizer.models import HarnessVersion
from orchestrator.agents.models import EndpointKind, ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion, Split, Task
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.jobs import services as jobs
from orchestrator.projects.access import require
from orchestrator.projects.models import Project, Role, User
from orchestrator.runs.models import ENDED_RUN_STATES, Run
from orchestrator.runs.services import end_cancelled_run, end_failed_run
from orchestrator.trainings.alarms import acknowledge_all
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.folders import fetched
from orchestrator.trainings.manifests import estimate_of, is_whole_model, manifest_of
from orchestrator.trainings.origins import Work, origin_of
from orchestrator.trainings.own import NAME as OWN
from orchestrator.trainings.scheduling import give_back, schedule
from orchestrator.trainings.settings import TrainSettings
from rubrics.models import RubricVersion
from training.models import (
    ENDED_TRAINING_STATES,
    Sweep,
    TrainingAlarm,
    TrainingJob,
    TrainingQuota,
    TrainingState,
)

MAX_PRIORITY = 10


def create_job(
    *,
    project: Project,
    work: Work,
    origin: str,
    key: str | None = None,
    name: str = "",
    sweep: Sweep | None = None,
    created_by: User | None = None,
    **data: Any,
) -> TrainingJob:
    """Frozen and waiting; needs a transaction. `schedule` gives it a device.

    Raises ValueError that names a setting which cannot be.
    """
    manifest = manifest_of(work, **data)
    manifest.validate()
    is_own = origin == OWN
    job = TrainingJob.objects.create(
        project=project,
        stream=create_stream(project=project, kind="training_job"),
        key=key,
        name=name,
        origin=origin,
        folder="",
        manifest=manifest.to_json(),
        manifest_sha256=manifest.sha256,
        total_steps=work.settings.steps,
        priority=work.settings.priority,
        estimate=estimate_of(manifest),
        settings=work.settings.to_json(),
        environment_version=work.environment_version if is_own else None,
        rubric_version=work.rubric_version if is_own else None,
        model=work.model if is_own else None,
        harness=work.harness if is_own else None,
        sweep=sweep,
        created_by=created_by,
    )
    job.folder = str(Path(django_settings.DATA_DIR) / "training" / str(job.pk))
    job.save(update_fields=["folder"])
    return job


def start_training(
    *,
    actor: User,
    project: Project,
    name: str,
    environment_version: EnvironmentVersion,
    rubric_version: RubricVersion,
    model: ModelEndpoint,
    harness: HarnessVersion,
    settings: TrainSettings,
    seed: int = 0,
) -> TrainingJob:
    """A job of its own. Raises TrainingRefused."""
    require(actor, project, Role.EDITOR)
    work = Work(environment_version, rubric_version, model, harness, settings, seed)
    check_work(work)
    with transaction.atomic():
        job = _created(project=project, work=work, name=name, actor=actor)
        schedule()
    job.refresh_from_db()
    return job


def _created(
    *, project: Project, work: Work, name: str, actor: User, sweep: Sweep | None = None
) -> TrainingJob:
    try:
        return create_job(
            project=project,
            work=work,
            origin=OWN,
            name=name.strip()[:120],
            sweep=sweep,
            created_by=actor,
        )
    except ValueError as error:
        raise TrainingRefused(str(error)) from error


def check_work(work: Work) -> None:
    """Raises TrainingRefused for what could only fail later."""
    if not work.model.gives_tokens:
        raise TrainingRefused(
            f"{work.model.name} gives text without tokens, so its weights cannot be trained here. "
            "Choose a model of this installation's model server, or one of a Tinker server."
        )
    if work.model.kind == EndpointKind.TINKER and work.settings.temperature != 1.0:
        raise TrainingRefused(
            f"{work.model.name} is on a Tinker server, which computes at temperature 1: set the "
            f"sampling temperature to 1, it is {work.settings.temperature:g}."
        )
    if work.model.adapter_path:
        fetched(work.model.adapter_path)
    starts_whole = is_whole_model(work.model.adapter_path)
    if starts_whole and not work.settings.full_weights:
        raise TrainingRefused(
            f"{work.model.name} is a whole model, and the model server serves adapters of its base "
            "alone. Train every weight, or begin with the base."
        )
    if work.settings.full_weights and work.model.adapter_path and not starts_whole:
        raise TrainingRefused(
            f"{work.model.name} is an adapter, so training every weight cannot begin with it. "
            "Begin with the base."
        )
    splits = set(
        Task.objects.filter(version=work.environment_version)
        .order_by()
        .values_list("split", flat=True)
    )
    if Split.TRAIN not in splits:
        raise TrainingRefused("The environment has no tasks of the split `train`.")
    if work.settings.evaluate_every and Split.SELECT not in splits:
        raise TrainingRefused(
            "The environment has no tasks of the split `select` to choose the best step by: add "
            "some, or set the evaluations to 0."
        )


def cancel_training(*, actor: User, job: TrainingJob) -> None:
    """Ends the job; its checkpoints and rollouts stay. A job that has ended stays as it is."""
    require(actor, job.project, Role.EDITOR)
    with transaction.atomic():
        job.refresh_from_db()
        if job.has_ended:
            return
        if job.job is not None:
            jobs.cancel(job=job.job)
        else:
            end_unfinished(job=job, is_cancelled=True, error="")


def end_unfinished(*, job: TrainingJob, is_cancelled: bool, error: str) -> None:
    """The job has no result and will have none. Needs a transaction."""
    for run in Run.objects.filter(training_run__training_job=job).exclude(
        state__in=ENDED_RUN_STATES
    ):
        if is_cancelled:
            end_cancelled_run(run=run, fence=None)
        else:
            end_failed_run(run=run, error=error)
    state = TrainingState.CANCELLED if is_cancelled else TrainingState.FAILED
    give_back(job, state=state, error=error, ended_at=timezone.now())
    append(
        stream_id=job.stream_id, items=[NewEvent("train.ended", {"state": state, "error": error})]
    )
    with contextlib.suppress(LookupError):  # what asked for it is gone, so nobody waits
        origin_of(job).ended(job)
    schedule()


def pause_training(*, actor: User, job: TrainingJob) -> None:
    """Between two steps; its device is free then. Raises TrainingRefused."""
    require(actor, job.project, Role.EDITOR)
    with transaction.atomic():
        changed = (
            TrainingJob.objects.filter(pk=job.pk, pause_reason="")
            .exclude(state__in=ENDED_TRAINING_STATES)
            .update(pause_reason=f"Paused by {actor.get_username()}.")
        )
        job.refresh_from_db()
        if not changed:
            raise TrainingRefused(f"{job} is {_state_in_words(job)}; it cannot be paused.")
        _tell_state(job)


def resume_training(*, actor: User, job: TrainingJob) -> None:
    """Acknowledges its alarms: whoever lets it go on has seen them. Raises TrainingRefused."""
    require(actor, job.project, Role.EDITOR)
    with transaction.atomic():
        acknowledge_all(actor=actor, job=job)
        changed = (
            TrainingJob.objects.filter(pk=job.pk)
            .exclude(pause_reason="")
            .exclude(state__in=ENDED_TRAINING_STATES)
            .update(pause_reason="")
        )
        job.refresh_from_db()
        if not changed:
            raise TrainingRefused(f"{job} is {_state_in_words(job)}; it is not paused.")
        _tell_state(job)
        schedule()


def acknowledge_alarm(*, actor: User, alarm: TrainingAlarm) -> None:
    """It comes back after some steps if it is still so."""
    require(actor, alarm.training_job.project, Role.EDITOR)
    TrainingAlarm.objects.filter(pk=alarm.pk, acknowledged_at=None).update(
        acknowledged_at=timezone.now(), acknowledged_by=actor
    )


def set_priority(*, actor: User, job: TrainingJob, priority: int) -> None:
    """Of a job that waits. Raises TrainingRefused."""
    require(actor, job.project, Role.EDITOR)
    if not -MAX_PRIORITY <= priority <= MAX_PRIORITY:
        raise TrainingRefused(f"A priority is from -{MAX_PRIORITY} to {MAX_PRIORITY}.")
    with transaction.atomic():
        changed = TrainingJob.objects.filter(
            pk=job.pk, state=TrainingState.QUEUED, device=""
        ).update(priority=priority)
        if not changed:
            raise TrainingRefused(f"{job} does not wait for a device any more.")
        schedule()


def set_quota(
    *, actor: User, project: Project, max_running: int | None, device_s_per_day: int | None
) -> None:
    """None: no limit. Raises TrainingRefused."""
    require(actor, project, Role.ADMIN)
    for name, value in (("Jobs at a time", max_running), ("Time a day", device_s_per_day)):
        if value is not None and value < 0:
            raise TrainingRefused(f"{name} cannot be less than 0.")
    with transaction.atomic():
        TrainingQuota.objects.update_or_create(
            project=project,
            defaults={"max_running": max_running, "device_s_per_day": device_s_per_day},
        )
        schedule()


def _state_in_words(job: TrainingJob) -> str:
    if job.pause_reason and not job.has_ended:
        return "paused"
    return str(job.get_state_display())


def _tell_state(job: TrainingJob) -> None:
    payload = {"state": job.state, "paused": job.pause_reason}
    append(stream_id=job.stream_id, items=[NewEvent("train.state", payload)])
