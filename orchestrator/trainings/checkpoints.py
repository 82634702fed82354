"""What people do with checkpoints: promote one to a model, download it, merge it into full weights.

A promoted checkpoint is a model of the project like any other: runs, searches and climbs can name
it. Merging needs torch, so it is a job that starts a process of the trainer's interpreter.
"""

from __future__ import annotations

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils import timezone

from orchestrator.agents.models import ModelEndpoint
from orchestrator.events.services import NewEvent, append, hold_fence
from orchestrator.jobs import services as jobs
from orchestrator.jobs.registry import JobContext
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.trainings.children import run_child
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.folders import adapter_folder, fetched, folder_of, is_kept
from orchestrator.trainings.keeper import adapter_name
from orchestrator.trainings.remote import refuse_remote, where
from training.jobs.folder import version_name
from training.models import Checkpoint

MERGE = "training.merge"
MERGE_LIMIT_S = 1800.0


def promote(*, actor: User, checkpoint: Checkpoint, name: str) -> ModelEndpoint:
    """Makes it a model of the project. Raises TrainingRefused."""
    job = checkpoint.training_job
    require(actor, job.project, Role.EDITOR)
    folder = _kept(checkpoint)
    name = name.strip()[:120] or f"{job}, step {checkpoint.step}"
    with transaction.atomic():
        if ModelEndpoint.objects.filter(project=job.project, name=name).exists():
            raise TrainingRefused(f"The project has a model called {name!r} already.")
        model = ModelEndpoint.objects.create(
            project=job.project,
            name=name,
            **where(job),
            model=adapter_name(job, version_name(checkpoint.step)),
            adapter_path=str(folder),
        )
        Checkpoint.objects.filter(pk=checkpoint.pk).update(
            promoted_at=timezone.now(), promoted_as=model
        )
    return model


def packed(checkpoint: Checkpoint) -> bytes:
    """The adapter in PEFT's format as a zip file. Raises TrainingRefused."""
    folder = _kept(checkpoint)
    refuse_remote(checkpoint, "there is no adapter to download")
    if checkpoint.training_job.trains_every_weight:
        raise TrainingRefused(
            f"Step {checkpoint.step} is a whole model, too large to pack on request. Its files are "
            f"in {folder} on the training host."
        )
    folder = fetched(folder)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.iterdir()):
            archive.write(path, f"{folder.name}/{path.name}")
    return buffer.getvalue()


def start_merge(*, actor: User, checkpoint: Checkpoint) -> None:
    """Queues the merge; a second call while one is under way changes nothing.

    Raises TrainingRefused.
    """
    job = checkpoint.training_job
    require(actor, job.project, Role.EDITOR)
    if job.trains_every_weight:
        raise TrainingRefused(
            f"Nothing to merge: every weight was trained, and {_kept(checkpoint)} is a whole model."
        )
    _kept(checkpoint)
    refuse_remote(checkpoint, "nothing can be merged here")
    with transaction.atomic():
        fresh = Checkpoint.objects.get(pk=checkpoint.pk)
        if fresh.merge.get("state") == "queued":
            return
        queued = jobs.enqueue(kind=MERGE, queue="gpu", spec={"checkpoint_id": checkpoint.pk})
        _record(fresh, {"state": "queued", "job": queued.pk})


def merge(ctx: JobContext) -> None:
    """Runs `training.merge` in a process of its own and records what it says."""
    checkpoint = Checkpoint.objects.select_related("training_job").get(pk=ctx.spec["checkpoint_id"])
    job = checkpoint.training_job
    out = folder_of(job) / "merged" / version_name(checkpoint.step)
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [
        job.manifest["execution"].get("interpreter") or sys.executable,
        *("-m", "training.merge"),
        *("--model", str(job.manifest["model"]["folder"])),
        *("--adapter", str(fetched(adapter_folder(checkpoint)))),
        *("--out", str(out)),
    ]
    _, said = run_child(command, ctx=ctx, limit_s=MERGE_LIMIT_S, doing="merging")
    with transaction.atomic():
        hold_fence(ctx.fence)
        _record(checkpoint, _outcome(said, str(out)))


def record_merge_unfinished(checkpoint_id: int, error: str) -> None:
    """Needs a transaction."""
    checkpoint = Checkpoint.objects.select_related("training_job").filter(pk=checkpoint_id).first()
    if checkpoint is not None:
        _record(checkpoint, {"state": "failed", "error": error or "cancelled"})


def _outcome(said: str, out: str) -> dict[str, Any]:
    lines = [line for line in said.splitlines() if line.strip()]
    try:
        found = json.loads(lines[-1]) if lines else {}
    except ValueError:
        found = {}
    if "max_logit_difference" in found:
        return {"state": "done", "folder": out, "difference": found["max_logit_difference"]}
    return {"state": "failed", "error": found.get("error") or " | ".join(lines[-2:]) or "no words"}


def _record(checkpoint: Checkpoint, merge: dict[str, Any]) -> None:
    Checkpoint.objects.filter(pk=checkpoint.pk).update(merge=merge)
    payload = {"step": checkpoint.step, **merge}
    append(stream_id=checkpoint.training_job.stream_id, items=[NewEvent("train.merge", payload)])


def _kept(checkpoint: Checkpoint) -> Path:
    folder = adapter_folder(checkpoint)
    if not is_kept(checkpoint):
        raise TrainingRefused(
            f"The weights of step {checkpoint.step} are not kept: only those of evaluated steps "
            "and of the last ones are."
        )
    return folder
