"""Who may see and change trainings: strangers get 404, members without the right 403."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from orchestrator.projects.access import Actor, project_for_edit, project_for_view
from training.models import Checkpoint, Sweep, TrainingAlarm, TrainingJob


def job_for_view(actor: Actor, project_id: int, job_id: int) -> TrainingJob:
    project = project_for_view(actor, project_id)
    return get_object_or_404(
        TrainingJob.objects.select_related("project", "stream", "sweep"), project=project, pk=job_id
    )


def job_for_edit(actor: Actor, project_id: int, job_id: int) -> TrainingJob:
    project = project_for_edit(actor, project_id)
    return get_object_or_404(
        TrainingJob.objects.select_related("project", "job"), project=project, pk=job_id
    )


def checkpoint_for_edit(actor: Actor, project_id: int, job_id: int, step: int) -> Checkpoint:
    job = job_for_edit(actor, project_id, job_id)
    return get_object_or_404(
        Checkpoint.objects.select_related("training_job__project"), training_job=job, step=step
    )


def checkpoint_for_view(actor: Actor, project_id: int, job_id: int, step: int) -> Checkpoint:
    job = job_for_view(actor, project_id, job_id)
    return get_object_or_404(
        Checkpoint.objects.select_related("training_job__project"), training_job=job, step=step
    )


def alarm_for_edit(actor: Actor, project_id: int, job_id: int, alarm_id: int) -> TrainingAlarm:
    job = job_for_edit(actor, project_id, job_id)
    return get_object_or_404(
        TrainingAlarm.objects.select_related("training_job__project"), training_job=job, pk=alarm_id
    )


def sweep_for_view(actor: Actor, project_id: int, sweep_id: int) -> Sweep:
    project = project_for_view(actor, project_id)
    return get_object_or_404(Sweep.objects.select_related("project"), project=project, pk=sweep_id)


def sweep_for_edit(actor: Actor, project_id: int, sweep_id: int) -> Sweep:
    project = project_for_edit(actor, project_id)
    return get_object_or_404(Sweep.objects.select_related("project"), project=project, pk=sweep_id)
