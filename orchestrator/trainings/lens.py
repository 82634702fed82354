"""What a checkpoint expected of a rollout's tokens, computed on demand in the trainer's process.

The result is a file named after rollout, tokens and weights: asked twice, it is computed once, and
a checkpoint that was written anew is looked through anew. A job that failed or was cancelled may be
asked for again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q

from orchestrator.blobs import sharing
from orchestrator.blobs.errors import BlobError
from orchestrator.blobs.services import is_shared
from orchestrator.events.services import hold_fence
from orchestrator.jobs import services as jobs
from orchestrator.jobs.errors import Retryable
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext
from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.runs.models import Rollout
from orchestrator.trainings.children import run_child
from orchestrator.trainings.errors import TrainingRefused
from orchestrator.trainings.folders import adapter_folder, fetched, is_kept
from orchestrator.trainings.remote import refuse_remote
from training.models import Checkpoint

LENS = "training.lens"
LIMIT_S = 900.0
MOST_TOKENS = 16_384
"""Of a rollout: more takes too long on a processor."""
_OPEN = (JobState.QUEUED, JobState.RUNNING)


@dataclass(frozen=True)
class LensView:
    """A checkpoint's look at a rollout: `none`, `queued`, `running`, `done`, `failed`,
    `cancelled`."""

    checkpoint: Checkpoint
    state: str
    error: str = ""
    rows: dict[int, dict[str, Any]] | None = None
    """By row index: `logprobs` (nats, one a token) and `pieces` (text of each token)."""


def checkpoints_for(rollout: Rollout) -> list[Checkpoint]:
    """Those of the project whose weights are kept and read the same tokens; newest job first."""
    known = Checkpoint.objects.filter(training_job__project=rollout.run.project_id)
    rows = known.select_related("training_job").order_by("-training_job_id", "step")
    mine = Q(training_job__model=rollout.run.model_id) | Q(promoted_as=rollout.run.model_id)
    mine |= Q(training_job__runs__run=rollout.run_id)
    return [each for each in rows.filter(mine).distinct() if is_kept(each)]


def start(*, actor: User, rollout: Rollout, checkpoint: Checkpoint) -> None:
    """Queues the look; while one is under way or done it changes nothing.

    Raises TrainingRefused.
    """
    require(actor, rollout.run.project_id, Role.EDITOR)
    if not is_kept(checkpoint):
        raise TrainingRefused(f"The weights of step {checkpoint.step} are not kept any more.")
    refuse_remote(checkpoint, "they cannot be asked for the surprise of each token here")
    sizes = [len(ids) for ids in rollout.token_rows.values_list("ids", flat=True)]
    if not sizes:
        raise TrainingRefused("No token ids are stored for this rollout.")
    if sum(sizes) > MOST_TOKENS:
        raise TrainingRefused(
            f"The rollout has {sum(sizes)} tokens; at most {MOST_TOKENS} are looked through."
        )
    if view(rollout, checkpoint).state in ("done", *_OPEN):
        return
    spec = {"rollout_id": rollout.pk, "checkpoint_id": checkpoint.pk}
    key = _key(rollout, checkpoint)
    tried = Job.objects.filter(kind=LENS, key__startswith=f"{key}.").count()
    with transaction.atomic():
        jobs.enqueue(kind=LENS, queue="gpu", spec=spec, key=f"{key}.{tried}", max_attempts=2)


def cancel(*, actor: User, rollout: Rollout, checkpoint: Checkpoint) -> None:
    require(actor, rollout.run.project_id, Role.EDITOR)
    found = _job(_key(rollout, checkpoint))
    if found is not None and found.state in _OPEN:
        jobs.cancel(job=found)


def view(rollout: Rollout, checkpoint: Checkpoint) -> LensView:
    key = _key(rollout, checkpoint)
    try:
        told = json.loads(fetched(_file(key)).read_text())
        return LensView(checkpoint, "done", rows={row["index"]: row for row in told["rows"]})
    except (OSError, ValueError, KeyError, TrainingRefused):
        found = _job(key)
    if found is None:
        return LensView(checkpoint, "none")
    if found.state == JobState.DONE:
        return LensView(checkpoint, "failed", "The result is gone from the data folder.")
    return LensView(checkpoint, found.state, found.error)


def look(ctx: JobContext) -> None:
    """Runs `training.lens` in a process of its own. Raises RuntimeError with what it said."""
    rollout = Rollout.everything.select_related("run").get(pk=ctx.spec["rollout_id"])
    checkpoint = Checkpoint.objects.select_related("training_job").get(pk=ctx.spec["checkpoint_id"])
    out = result_file(rollout, checkpoint)
    out.parent.mkdir(parents=True, exist_ok=True)
    rows = out.with_suffix(f".{ctx.job_id}.rows")
    rows.write_text(json.dumps(list(rollout.token_rows.order_by("index").values("index", "ids"))))
    command = [*command_of(checkpoint), "--rows", str(rows), "--out", str(out)]
    try:
        code, said = run_child(
            command, ctx=ctx, limit_s=LIMIT_S, doing="looking through the tokens"
        )
    finally:
        rows.unlink(missing_ok=True)
    if code or not out.exists():
        raise RuntimeError(_reason(said.strip().splitlines()))
    try:
        taken = sharing.take(out)
    except BlobError as error:
        raise Retryable(str(error), delay_s=10.0) from error
    if taken is not None:
        with transaction.atomic():
            hold_fence(ctx.fence)
            sharing.record(taken)


def command_of(checkpoint: Checkpoint) -> list[str]:
    """What looks with these weights: an adapter on its base, or a whole model."""
    job, trained = checkpoint.training_job, str(fetched(adapter_folder(checkpoint)))
    program = job.manifest["execution"].get("interpreter") or sys.executable
    weights = ["--model", str(job.manifest["model"]["folder"]), "--adapter", trained]
    if job.trains_every_weight:
        weights = ["--model", trained]
    return [program, "-m", "training.lens", *weights]


def result_file(rollout: Rollout, checkpoint: Checkpoint) -> Path:
    """Where a finished look lies: what `training.lens` writes."""
    return _file(_key(rollout, checkpoint))


def _reason(words: list[str]) -> str:
    try:
        return str(json.loads(words[-1])["error"])
    except (IndexError, ValueError, KeyError, TypeError):
        return " | ".join(words[-2:]) or "the process ended without a word"


def _key(rollout: Rollout, checkpoint: Checkpoint) -> str:
    return f"lens.{rollout.pk}.{rollout.attempt}.{_weights(checkpoint)}"


def _weights(checkpoint: Checkpoint) -> str:
    """Of base and adapter: names, sizes and times of the files, not their bytes, which a page
    would have to read whole."""
    digest = hashlib.sha256()
    if is_shared():  # the same on every host
        told = (checkpoint.pk, checkpoint.training_job.manifest_sha256, checkpoint.metrics)
        return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:20]
    folders = [adapter_folder(checkpoint)]
    folders.append(Path(checkpoint.training_job.manifest["model"]["folder"]))
    for folder in folders:
        digest.update(str(folder).encode())
        for path in sorted(folder.glob("*")):
            found = path.stat()
            digest.update(f"{path.name} {found.st_size} {found.st_mtime_ns}".encode())
    return digest.hexdigest()[:20]


def _job(key: str) -> Job | None:
    return Job.objects.filter(kind=LENS, key__startswith=f"{key}.").order_by("-pk").first()


def _file(key: str) -> Path:
    return Path(settings.DATA_DIR) / "lens" / f"{key}.json"
