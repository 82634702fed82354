"""The ECHO rung on the climb's side: manifest, rollouts for each step, and the trainer's keeper.

The trainer is a child process with its own interpreter; a worker thread keeps it. Each step it asks
for rollouts by a file; the thread runs them with the step's adapter, stores them as facts, and
answers with a file of rows. So a kill on either side samples nothing twice: rollouts are rows in
the database, and rows of a step are on disk before its update.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings as django_settings
from django.db import transaction
from django.utils import timezone

from optimizer.models import HarnessVersion
from optimizer.store import load_harness
from orchestrator.climbs.asking import ask_for_run
from orchestrator.climbs.curricula import training_tasks
from orchestrator.climbs.models import Climb, ClimbState, Rung, RungKind
from orchestrator.climbs.rows import rows_of_run
from orchestrator.climbs.services import fail_climb, queue_advance
from orchestrator.climbs.settings import ClimbSettings, TrainSettings
from orchestrator.events.services import Fence, NewEvent, append, create_stream, hold_fence
from orchestrator.jobs import services as jobs
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext
from orchestrator.runs.engine import execute_run
from orchestrator.runs.models import Purpose, Run, RunState
from orchestrator.runs.services import PlannedRollout
from training.jobs import client
from training.jobs.folder import Need
from training.manifest import (
    BatchPart,
    BudgetPart,
    ExecutionPart,
    LoraPart,
    Manifest,
    ModelPart,
    OptimiserPart,
)
from training.models import Checkpoint, TrainingJob, TrainingState
from training.schedule import RateSpec
from training.types import AdvantageMode, AdvantageSpec, EnvNorm, ObjectiveSpec

POLL_S = 0.1
MAX_RESTARTS = 3
"""Of the trainer within one attempt, without a finished step in between."""

log = structlog.get_logger(__name__)


class TrainingError(RuntimeError):
    """The training job cannot go on; the message is shown on the ladder."""


def final_adapter_name(job: TrainingJob) -> str:
    return f"t{job.pk}-v{job.total_steps:04d}"


def ask_for_training(*, climb: Climb, rung: Rung, fence: Fence) -> TrainingJob | None:
    """The climb's training job once it is complete; made and queued when it does not exist."""
    job = climb.training_job
    if job is None:
        job = _create_job(climb, rung, fence)
    if job.state == TrainingState.COMPLETED:
        return job
    if job.state in (TrainingState.FAILED, TrainingState.CANCELLED):
        with transaction.atomic():
            hold_fence(fence)
            fail_climb(climb=climb, error=f"ECHO training {job.state}: {job.error}")
    return None


def _create_job(climb: Climb, rung: Rung, fence: Fence) -> TrainingJob:
    settings = ClimbSettings.from_json(climb.config).train
    manifest = manifest_of(climb, rung, settings)
    with transaction.atomic():
        hold_fence(fence)
        job = TrainingJob.objects.create(
            project=climb.project,
            stream=create_stream(project=climb.project, kind="training_job"),
            key=f"climb-{climb.pk}",
            folder="",
            manifest=manifest.to_json(),
            manifest_sha256=manifest.sha256,
            total_steps=settings.steps,
        )
        job.folder = str(Path(django_settings.DATA_DIR) / "training" / str(job.pk))
        job.job = jobs.enqueue(
            kind="training.execute",
            queue="gpu",
            spec={"training_job_id": job.pk},
            key=f"training-{job.pk}",
        )
        job.save(update_fields=["folder", "job"])
        Climb.objects.filter(pk=climb.pk).update(training_job=job)
        append(
            stream_id=climb.stream_id,
            items=[
                NewEvent(
                    "decision",
                    {
                        "text": (
                            "Turn to weights: LoRA rank "
                            f"{settings.lora_rank}, {settings.steps} steps of "
                            f"{settings.groups} × {settings.samples} rollouts, "
                            f"λ {settings.env_loss_weight:g} ({settings.env_normalisation})."
                        )
                    },
                )
            ],
            fence=fence,
        )
    return job


def manifest_of(climb: Climb, rung: Rung, settings: TrainSettings) -> Manifest:
    """Everything that decides the result, written out."""
    assert rung.harness is not None  # a rung starts with the harness it trains under
    return Manifest(
        model=ModelPart(folder=str(django_settings.MODEL_DIR), name=climb.model.model),
        lora=LoraPart(rank=settings.lora_rank, alpha=settings.lora_alpha),
        objective=ObjectiveSpec(
            lambda_env=settings.env_loss_weight,
            env_norm=EnvNorm(settings.env_normalisation),
            policy_temperature=settings.temperature,
            advantage=AdvantageSpec(mode=AdvantageMode(settings.advantage)),
        ),
        optimiser=OptimiserPart(
            rate=RateSpec(base=settings.learning_rate, warmup_steps=settings.warmup_steps),
            clip_norm=settings.clip_norm,
        ),
        batch=BatchPart(
            groups_per_step=settings.groups,
            group_size=settings.samples,
            budget_tokens=settings.budget_tokens,
        ),
        sampling={"temperature": settings.temperature},
        data={
            "environment_sha256": climb.environment_version.sha256,
            "rubric_sha256": climb.rubric_version.sha256,
            "harness_sha256": rung.harness.sha256,
            "climb": climb.pk,
        },
        seed=climb.seed,
        execution=ExecutionPart(threads=settings.threads, measures_entropy=False),
        budgets=BudgetPart(steps=settings.steps),
    )


def execute_training(*, job: TrainingJob, ctx: JobContext) -> None:
    """Keeps the trainer until it is done. Raises LeaseLost, Cancelled, Stopped, TrainingError."""
    if job.state in (TrainingState.COMPLETED, TrainingState.FAILED, TrainingState.CANCELLED):
        return
    _mark_running(job, ctx.fence)
    folder = Path(job.folder)
    client.submit(folder, Manifest.from_json(job.manifest))
    keeper = _Keeper(job, folder, ctx)
    try:
        keeper.keep()
    finally:
        keeper.stop()


class _Keeper:
    """One attempt at keeping a training job: trainer alive, needs answered, news recorded."""

    def __init__(self, job: TrainingJob, folder: Path, ctx: JobContext) -> None:
        self._job = job
        self._climb = Climb.objects.select_related(
            "project", "environment_version", "rubric_version", "model"
        ).get(training_job=job)
        self._rung = Rung.objects.select_related("harness").get(
            climb=self._climb, kind=RungKind.ECHO
        )
        self._settings = ClimbSettings.from_json(self._climb.config).train
        self._folder = folder
        self._ctx = ctx
        self._process: subprocess.Popen[bytes] | None = None
        self._offset = 0
        self._restarts = 0

    def keep(self) -> None:
        while True:
            self._ctx.check()
            self._record_news()
            status = client.status(self._folder)
            if status.state is client.JobState.DONE:
                self._record_news()
                self._finish(str(status.adapter), status.adapter_sha256)
                return
            if status.state is client.JobState.FAILED and not self._is_alive():
                raise TrainingError(status.reason)
            self._ensure_alive(status)
            need = client.pending_need(self._folder)
            if need is not None and not self._is_paused():
                self._answer(need)
            else:
                self._ctx.wait(POLL_S)

    def stop(self) -> None:
        if self._process is not None:
            client.stop_runner(self._process)

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _is_paused(self) -> bool:
        return Climb.objects.filter(pk=self._climb.pk, state=ClimbState.PAUSED).exists()

    def _ensure_alive(self, status: client.JobStatus) -> None:
        """Starts the trainer, again after it died or hung; it continues from its checkpoint."""
        is_hung = status.state is client.JobState.HUNG and self._is_alive()
        if self._is_alive() and not is_hung:
            return
        if self._process is not None:
            self._restarts += 1
            if self._restarts > MAX_RESTARTS:
                raise TrainingError(
                    f"The trainer ended {self._restarts} times without finishing a step. "
                    f"Last words: {self._last_words()}"
                )
            client.stop_runner(self._process)
            log.warning("trainer is started again", reason=status.reason, hung=is_hung)
            self._ctx.wait(0.5)
        self._process = client.start_runner(self._folder)

    def _last_words(self) -> str:
        try:
            lines = (self._folder / "runner.log").read_text(errors="replace").splitlines()
        except OSError:
            return "none"
        return " | ".join(lines[-3:])

    def _answer(self, need: Need) -> None:
        """Runs the rollouts of a step under its weights and hands their tokens over."""
        adapter = f"t{self._job.pk}-{need.weight_version}" if need.adapter else ""
        run = ask_for_run(
            climb=self._climb,
            rung=self._rung,
            key=f"step-{need.step}",
            label=f"ECHO step {need.step} of {self._settings.steps}",
            purpose=Purpose.TRAIN,
            plan=self._plan(need.step),
            seed_parts=("train", need.step),
            adapter_name=adapter,
            adapter_path=need.adapter or "",
            sampling={"temperature": self._settings.temperature},
            queue_job=False,
            fence=self._ctx.fence,
        )
        # Cancelling the run of a step cancels the training: no step can be left out.
        Run.objects.filter(pk=run.pk, job__isnull=True).update(job_id=self._ctx.job_id)
        execute_run(run=run, ctx=self._ctx)
        run.refresh_from_db()
        if run.state == RunState.FAILED:
            raise TrainingError(f"{run.label}: {run.error}")
        rows = rows_of_run(run, weight_version=need.weight_version)
        if not rows:
            raise TrainingError(
                f"{run.label}: no rollout gave tokens to train on. {run.error}".strip()
            )
        client.write_rows(self._folder, step=need.step, records=rows)

    def _plan(self, step: int) -> list[PlannedRollout]:
        """`groups` train tasks that the sampler chooses, each `samples` times.

        Tasks that stand in the harness as demonstrations are left out: their answers are told.
        """
        harness: HarnessVersion | None = self._rung.harness
        assert harness is not None
        told = {d.source for d in load_harness(harness).demonstrations}
        chosen = training_tasks(climb=self._climb, settings=self._settings, step=step, exclude=told)
        return [
            PlannedRollout(harness.pk, task, replicate)
            for task in chosen
            for replicate in range(self._settings.samples)
        ]

    def _record_news(self) -> None:
        """Metrics of finished steps become events, once each."""
        news, self._offset = client.read_events(self._folder, self._offset)
        for event in news:
            if event["kind"] == "step" and event["step"] > self._job.step:
                self._record_step(event)

    def _record_step(self, metrics: dict[str, Any]) -> None:
        step = int(metrics["step"])
        payload = {"total": self._job.total_steps, **metrics, "kind": "step"}
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            TrainingJob.objects.filter(pk=self._job.pk).update(step=step)
            Checkpoint.objects.update_or_create(
                training_job=self._job,
                step=step,
                defaults={
                    "path": str(self._folder / "checkpoints" / f"step-{step:06d}"),
                    "metrics": payload,
                },
            )
            events = [NewEvent("train.step", payload)]
            append(stream_id=self._job.stream_id, items=events, fence=self._ctx.fence)
            append(stream_id=self._climb.stream_id, items=events, fence=self._ctx.fence)
        self._job.step = step
        self._restarts = 0
        self._ctx.progress()

    def _finish(self, adapter_path: str, adapter_sha256: str) -> None:
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            TrainingJob.objects.filter(pk=self._job.pk).update(
                state=TrainingState.COMPLETED,
                adapter_path=adapter_path,
                adapter_sha256=adapter_sha256,
                ended_at=timezone.now(),
            )
            queue_advance(climb_id=self._climb.pk, after=f"training-{self._job.pk}")


def _mark_running(job: TrainingJob, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        TrainingJob.objects.filter(pk=job.pk, state=TrainingState.QUEUED).update(
            state=TrainingState.RUNNING, started_at=timezone.now()
        )
    job.refresh_from_db()


def record_training_unfinished(job: Job) -> None:
    """A training job whose job was cancelled or given up ends with it, and moves its climb."""
    training_job = TrainingJob.objects.filter(pk=job.spec["training_job_id"]).first()
    if training_job is None:
        return
    state = TrainingState.CANCELLED if job.state == JobState.CANCELLED else TrainingState.FAILED
    TrainingJob.objects.filter(pk=training_job.pk).update(
        state=state, error=job.error, ended_at=timezone.now()
    )
    climb = Climb.objects.filter(training_job=training_job).first()
    if climb is not None:
        queue_advance(climb_id=climb.pk, after=f"training-{training_job.pk}")
