"""The folder of a training job on this host, and what other hosts get of it.

The worker that keeps the trainer shares what matters after each step: checkpoints, published
weights, scores. Rows and needs are not shared: rollouts are rows of the database, from which they
are made anew. So another host goes on from the last checkpoint, and any host can serve, pack or
look through published weights. Without a common store (`SWITCHBACK_BLOBS`) nothing is done.
"""

from __future__ import annotations

import re
from pathlib import Path

import structlog

from orchestrator.blobs import sharing
from orchestrator.blobs.errors import BlobDamaged, BlobError
from orchestrator.jobs.errors import Retryable
from orchestrator.trainings.errors import TrainingError, TrainingRefused
from training.checkpoint import LATEST
from training.models import Checkpoint, TrainingJob

log = structlog.get_logger(__name__)

_TRIES = 3
"""The trainer removes old checkpoints and writes events while they are read."""
_SHARED = re.compile(r"(manifest\.json|pool\.jsonl|events\.jsonl|(checkpoints|publish|scores)/.+)")


def folder_of(job: TrainingJob) -> Path:
    """On this host, whether it is there or not."""
    return sharing.here(job.folder)


def adapter_folder(checkpoint: Checkpoint) -> Path:
    """In PEFT's format, on this host; gone once it is neither evaluated nor among the last."""
    return folder_of(checkpoint.training_job) / "publish" / f"v{checkpoint.step:04d}"


def is_kept(checkpoint: Checkpoint) -> bool:
    """Whether its weights are here or can be fetched."""
    return sharing.is_kept(adapter_folder(checkpoint))


def fetched(path: str | Path) -> Path:
    """Weights that a row names, on this host. Raises TrainingRefused where they cannot be had."""
    try:
        return sharing.local(path)
    except (BlobError, OSError) as error:
        raise TrainingRefused(f"The weights cannot be fetched: {error}") from error


def prepare(job: TrainingJob) -> Path:
    """The folder, as far as any host has got with it.

    Raises Retryable while the store is away, TrainingError where the base is not on this host.
    """
    folder = folder_of(job)
    try:
        newest = sharing.shared_version(folder)
        if newest is not None and newest > step_in(folder):
            log.info("training goes on from another host", training_job=job.pk, step=newest)
            sharing.fetch_again(folder)
        if begins_with := job.manifest["model"].get("initial_adapter"):
            found = sharing.local(begins_with)
            if found != Path(begins_with) and found.exists():
                raise TrainingError(
                    f"The training begins with {begins_with}, which lies at {found} here: all "
                    "hosts that train need the data folder at the same path."
                )
    except BlobError as error:
        raise Retryable(str(error), delay_s=30.0) from error
    return folder


def share(job: TrainingJob) -> sharing.Taken | None:
    """Puts its present state among the blobs; `sharing.record` with `step_in` makes it known.

    Raises BlobError.
    """
    folder = folder_of(job)
    for last in range(_TRIES):
        try:
            return sharing.take(folder, wanted=is_shared)
        except (FileNotFoundError, BlobDamaged) as error:
            if last + 1 == _TRIES:
                raise BlobError(f"{folder} changed while it was read: {error}") from error
    return None


def is_shared(name: str) -> bool:
    """Whether other hosts get the file of a job's folder."""
    return bool(_SHARED.fullmatch(name)) and "/." not in f"/{name}"


def step_in(folder: Path) -> int:
    """Of the last checkpoint in it; -1 where there is none."""
    try:
        name = (folder / "checkpoints" / LATEST).read_text(encoding="utf-8").strip()
        return int(name.removeprefix("step-"))
    except (OSError, ValueError):
        return -1
