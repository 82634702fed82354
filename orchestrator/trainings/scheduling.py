"""Gives free devices to waiting jobs: `training.scheduling` over what the database says.

Called whenever something changes: a job is submitted, ends, waits, goes on, or a quota is set. Two
callers at once may choose the same device; a constraint lets one of them have it.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from orchestrator.jobs import services as jobs
from orchestrator.trainings.devices import devices, queue_of
from orchestrator.trainings.origins import is_waiting
from training.models import TrainingJob, TrainingQuota, TrainingState
from training.scheduling import Plan, Quota, Running, Waiting, plan

HELD = (TrainingState.QUEUED, TrainingState.RUNNING)
WINDOW = timedelta(hours=24)
PAUSED = "Paused."


def schedule() -> list[TrainingJob]:
    """Assigns what can be assigned, and queues it for the worker of its device."""
    given = []
    with transaction.atomic():
        for pk, device in current_plan().assigned.items():
            try:
                with transaction.atomic():
                    taken = TrainingJob.objects.filter(
                        pk=pk, state=TrainingState.QUEUED, device=""
                    ).update(device=device, device_since=timezone.now())
            except IntegrityError:
                continue  # somebody else gave the device away; they call this again when it ends
            if not taken:
                continue
            job = TrainingJob.objects.get(pk=pk)
            job.job = jobs.enqueue(
                kind="training.execute", queue=queue_of(device), spec={"training_job_id": pk}
            )
            job.save(update_fields=["job"])
            given.append(job)
    return given


def current_plan() -> Plan:
    """What would happen now, and why the rest waits."""
    open_jobs = list(TrainingJob.objects.filter(state__in=HELD).order_by("id"))
    waiting = [job for job in open_jobs if not job.device and job.state == TrainingState.QUEUED]
    paused = {job.pk for job in waiting if is_paused(job)}
    found = plan(
        devices=devices(),
        running=[Running(job.pk, job.project_id, job.device) for job in open_jobs if job.device],
        waiting=[_waiting(job) for job in waiting if job.pk not in paused],
        used_s=used_s(),
        quotas=quotas(),
        now_s=timezone.now().timestamp(),
    )
    return Plan(found.assigned, {**found.waits, **dict.fromkeys(sorted(paused), PAUSED)})


def is_paused(job: TrainingJob) -> bool:
    """Whether a person has to let it go on first."""
    return bool(job.pause_reason) or is_waiting(job)


def used_s() -> dict[int, float]:
    """Seconds that each project's jobs have had a device within the window."""
    now = timezone.now()
    begin = now - WINDOW
    found: dict[int, float] = defaultdict(float)
    recent = TrainingJob.objects.exclude(ended_at__lt=begin)
    for job in recent.only("project_id", "device_s", "device_since"):
        found[job.project_id] += job.device_s
        if job.device_since is not None:
            found[job.project_id] += (now - max(begin, job.device_since)).total_seconds()
    return found


def give_back(training: TrainingJob, **changes: Any) -> None:
    """Takes the device from the job and books its time; needs a transaction. Then `schedule`."""
    held = training.device_s
    if training.device_since is not None:
        held += (timezone.now() - training.device_since).total_seconds()
    changes = {"device": "", "device_since": None, "device_s": held, **changes}
    TrainingJob.objects.filter(pk=training.pk).update(**changes)
    training.refresh_from_db()


def quotas() -> dict[int, Quota]:
    return {
        row.project_id: Quota(row.max_running, row.device_s_per_day)
        for row in TrainingQuota.objects.all()
    }


def _waiting(job: TrainingJob) -> Waiting:
    return Waiting(
        job=job.pk,
        project=job.project_id,
        priority=job.priority,
        submitted_s=job.created_at.timestamp(),
        kind=str(job.manifest["execution"]["device"]).partition(":")[0],
        memory_mb=float(job.estimate.get("memory_mb") or 0.0),
    )
