"""One attempt at keeping a training job: trainer alive, needs answered, news recorded.

The trainer is a child process with its own interpreter; a worker thread keeps it. Each step it asks
for rollouts by a file; the thread runs them with the step's adapter, stores them as facts, and
answers with a file of rows. So a kill on either side samples nothing twice: rollouts are rows in
the database, and rows of a step are on disk before its update.

A job that is paused gives its device back between two steps and goes to the queue again: the
trainer continues from its checkpoint, bit for bit.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog
from django.db import transaction
from django.utils import timezone

from optimizer.store import load_harness
from orchestrator.blobs import sharing
from orchestrator.blobs.errors import BlobError
from orchestrator.environments.models import Split, Task
from orchestrator.events.models import Event
from orchestrator.events.services import Fence, NewEvent, append, hold_fence
from orchestrator.jobs.errors import Retryable
from orchestrator.jobs.registry import JobContext
from orchestrator.logs import context_for_child
from orchestrator.runs.engine import execute_run
from orchestrator.runs.limits import LimitReached
from orchestrator.runs.models import Purpose, Run, RunState
from orchestrator.runs.services import PlannedRollout
from orchestrator.trainings.alarms import raise_alarms
from orchestrator.trainings.curves import pack
from orchestrator.trainings.devices import environment_for
from orchestrator.trainings.errors import TrainingError
from orchestrator.trainings.folders import prepare, share, step_in
from orchestrator.trainings.origins import Asked, origin_of
from orchestrator.trainings.remote import key_for
from orchestrator.trainings.rows import rows_of_run
from orchestrator.trainings.scheduling import give_back, is_paused, schedule
from training.jobs import client
from training.jobs.attempts import Failure, verdict
from training.jobs.folder import Evaluation, EvaluationNeed, Need
from training.manifest import Manifest
from training.models import (
    Checkpoint,
    TrainingJob,
    TrainingRun,
    TrainingRunKind,
    TrainingState,
)

POLL_S = 0.1
POOL_ROWS = 16
"""Of the fixed pool: a pass over them costs about as much as a small part of a step."""
MAX_BUSY = 100
"""Attempts to find the folder free: a trainer whose worker was killed ends within moments."""

log = structlog.get_logger(__name__)


def adapter_name(job: TrainingJob, version: str) -> str:
    """What the weights of a version are called on the model server, in runs and on pages."""
    return f"t{job.pk}-{version}"


def execute_training(*, job: TrainingJob, ctx: JobContext) -> None:
    """Keeps the trainer until it is done. Raises LeaseLost, Cancelled, Stopped, TrainingError."""
    if job.has_ended or job.job_id != ctx.job_id:
        return
    _mark_running(job, ctx.fence)
    folder = prepare(job)
    client.submit(folder, Manifest.from_json(job.manifest))
    keeper = Keeper(job, folder, ctx)
    try:
        keeper.keep()
    finally:
        keeper.stop()


class Keeper:
    """See the module."""

    def __init__(self, job: TrainingJob, folder: Path, ctx: JobContext) -> None:
        self._job = job
        self._origin = origin_of(job)
        self._work = self._origin.work
        self._folder = folder
        self._ctx = ctx
        self._process: subprocess.Popen[bytes] | None = None
        self._offset = 0
        self._busy = 0
        self._steps = _told_so_far(job, "train.step")
        self._connected_at = max(
            (float(each["at"]) for each in _told_so_far(job, "train.connected")), default=0.0
        )
        self._evaluated = {int(e["step"]) for e in _told_so_far(job, "train.evaluated")}

    def keep(self) -> None:
        while True:
            self._ctx.check()
            self._record_news()
            status = client.status(self._folder)
            if status.state is client.JobState.DONE:
                self._record_news()
                self._finish(status)
                return
            self._ensure_alive(status)
            evaluation = client.pending_evaluation(self._folder)
            need = client.pending_need(self._folder)
            if (evaluation or need) and self._is_paused():
                self._step_aside()
                return
            try:
                if evaluation is not None:
                    self._evaluate(evaluation)
                elif need is not None:
                    self._answer(need)
                else:
                    self._ctx.wait(POLL_S)
            except LimitReached as reached:
                # The need stays; seen as paused at the next turn, the job gives its device back.
                self._origin.pause(str(reached), self._ctx.fence)

    def stop(self) -> None:
        if self._process is not None:
            client.stop_runner(self._process)

    def _is_paused(self) -> bool:
        self._job.refresh_from_db(fields=["pause_reason"])
        return is_paused(self._job)

    def _step_aside(self) -> None:
        """Back to the queue, from which a pause keeps it until a person lets it go on."""
        self.stop()
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            give_back(self._job, state=TrainingState.QUEUED, job=None)
            # Whoever gets the device gets it with this: a kill in between would leave it idle.
            schedule()

    # --- the trainer's process ---------------------------------------------------------------

    def _ensure_alive(self, status: client.JobStatus) -> None:
        """Starts the trainer, again after it failed, died or hung, from its last checkpoint."""
        process = self._process
        if process is None:
            self._process = self._start()
            return
        code = process.poll()
        if code is None:
            if status.state is not client.JobState.HUNG:
                return
            client.stop_runner(process)
            failure = Failure(status.step, "hung", status.reason)
        elif code == client.EXIT_BUSY and self._busy < MAX_BUSY:
            self._busy += 1
            self._ctx.wait(0.5)
            self._process = self._start()
            return
        else:
            failure = self._failure(status, code)
        self._record_failure(failure)
        self._ctx.wait(0.5)
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        env = {**os.environ, **environment_for(self._job.device), **key_for(self._work.model)}
        env |= context_for_child()
        return client.start_runner(self._folder, env=env)

    def _failure(self, status: client.JobStatus, code: int) -> Failure:
        if status.state is client.JobState.FAILED:
            return Failure(status.step, status.kind, status.reason)
        if code < 0:
            with contextlib.suppress(ValueError):
                name = signal.Signals(-code).name
                hint = ", as happens when memory runs out" if name == "SIGKILL" else ""
                reason = f"killed by {name} in phase {status.phase}{hint}"
                return Failure(status.step, f"killed by {name}", reason)
        words = self._last_words()
        return Failure(status.step, f"exit {code}", f"ended with exit code {code}: {words}")

    def _record_failure(self, failure: Failure) -> None:
        """Raises TrainingError where there is no further attempt."""
        failures = [*(Failure(**each) for each in self._job.failures), failure]
        stops = verdict(failures)
        self._job.failures = [asdict(each) for each in failures]
        payload = {
            "step": failure.step,
            "kind": failure.kind,
            "reason": failure.reason,
            "attempt": len(failures),
            "stops": stops,
        }
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            TrainingJob.objects.filter(pk=self._job.pk).update(failures=self._job.failures)
            self._append([NewEvent("train.attempt", payload)])
        log.warning("trainer failed", **payload)
        if stops:
            raise TrainingError(stops)

    def _last_words(self) -> str:
        try:
            lines = (self._folder / "runner.log").read_text(errors="replace").splitlines()
        except OSError:
            return "no words"
        return " | ".join(lines[-3:]) or "no words"

    # --- rollouts ----------------------------------------------------------------------------

    def _answer(self, need: Need) -> None:
        """Runs the rollouts of a step under its weights and hands their tokens over."""
        tasks = self._origin.tasks(need.step)
        run = self._run(
            Asked(
                kind=TrainingRunKind.STEP,
                step=need.step,
                key=f"step-{need.step}",
                label=f"ECHO step {need.step} of {self._job.total_steps}",
                purpose=Purpose.TRAIN,
                plan=[
                    PlannedRollout(self._work.harness.pk, task, replicate)
                    for task in tasks
                    for replicate in range(self._work.settings.samples)
                ],
                seed_parts=("train", need.step),
                adapter_name=adapter_name(self._job, need.weight_version) if need.adapter else "",
                adapter_path=need.adapter or "",
            )
        )
        if run.state == RunState.FAILED:
            raise TrainingError(f"{run.label}: {run.error}")
        rows = rows_of_run(run, self._origin.rewards(run), weight_version=need.weight_version)
        if not rows:
            raise TrainingError(
                f"{run.label}: no rollout gave tokens to train on. {run.error}".strip()
            )
        client.write_rows(self._folder, step=need.step, records=rows)

    def _evaluate(self, need: EvaluationNeed) -> None:
        """Measures the weights of a step on held-out tasks; few scores are told, not refused."""
        run = self._run(
            Asked(
                kind=TrainingRunKind.EVALUATION,
                step=need.step,
                key=f"select-{need.step}",
                label=f"Held-out evaluation after step {need.step}",
                purpose=Purpose.EVALUATE,
                plan=self._held_out_plan(),
                seed_parts=("select",),
                adapter_name=adapter_name(self._job, need.weight_version) if need.adapter else "",
                adapter_path=need.adapter,
            )
        )
        rewards = self._origin.rewards(run)
        scores = [score for score in rewards.values() if score is not None]
        mean = min(1.0, max(0.0, math.fsum(scores) / len(scores))) if scores else None
        found = Evaluation(need.step, mean, len(scores), len(rewards) - len(scores))
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            TrainingRun.objects.filter(run=run).update(
                mean=mean, n_scored=found.n_scored, n_errored=found.n_errored
            )
        if need.step == 0:  # the weights before training, on tasks that nothing is trained on
            pool = rows_of_run(run, rewards, weight_version=need.weight_version)
            client.write_pool(self._folder, pool[:POOL_ROWS])
        client.write_evaluation(self._folder, found)

    def _held_out_plan(self) -> list[PlannedRollout]:
        """The same tasks of the split `select` each time, spread over its families."""
        tasks = list(
            Task.objects.filter(
                version=self._work.environment_version, split=Split.SELECT
            ).order_by("key")
        )
        if not tasks:
            raise TrainingError(
                "The environment has no tasks of the split `select` to evaluate on: add some, or "
                "set `evaluate_every` to 0."
            )
        n = self._work.settings.evaluate_rollouts
        chosen = [tasks[i * len(tasks) // n] for i in range(n)] if n < len(tasks) else tasks
        return [PlannedRollout(self._work.harness.pk, task) for task in chosen]

    def _run(self, asked: Asked) -> Run:
        """Runs it here, whoever's it is."""
        run = self._origin.ask(asked, self._ctx.fence)
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            TrainingRun.objects.get_or_create(
                training_job=self._job,
                kind=asked.kind,
                step=asked.step,
                defaults={"run": run},
            )
            # Cancelling the run of a step cancels the training: no step can be left out.
            Run.objects.filter(pk=run.pk, job__isnull=True).update(job_id=self._ctx.job_id)
        execute_run(run=run, ctx=self._ctx)
        run.refresh_from_db()
        return run

    # --- news --------------------------------------------------------------------------------

    def _record_news(self) -> None:
        """Metrics of finished steps become events, once each."""
        news, self._offset = client.read_events(self._folder, self._offset)
        for event in news:
            if event["kind"] == "step" and event["step"] > self._job.step:
                self._record_step(event)
            elif event["kind"] == "evaluated" and event["step"] not in self._evaluated:
                self._record_evaluated(event)
            elif event["kind"] == "connected" and event["at"] > self._connected_at:
                self._record_connected(event)

    def _record_step(self, metrics: dict[str, Any]) -> None:
        step = int(metrics["step"])
        payload = {
            "total": self._job.total_steps,
            **metrics,
            "kind": "step",
            "attempt": self._ctx.fence.attempt,
        }
        self._steps.append(payload)
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            TrainingJob.objects.filter(pk=self._job.pk).update(step=step, failures=[])
            Checkpoint.objects.update_or_create(
                training_job=self._job,
                step=step,
                defaults={
                    "path": str(self._folder / "publish" / f"v{step:04d}"),
                    "metrics": payload,
                },
            )
            self._append([NewEvent("train.step", payload)])
            raise_alarms(
                job=self._job,
                origin=self._origin,
                steps=self._steps,
                pauses=self._work.settings.pauses_on_alarm,
                fence=self._ctx.fence,
            )
        self._job.step, self._job.failures, self._busy = step, [], 0
        self._ctx.progress()
        self._share()

    def _record_connected(self, event: dict[str, Any]) -> None:
        """What the probe of a Tinker server has found, of each attempt."""
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            self._append([NewEvent("train.connected", event)])
        self._connected_at = float(event["at"])

    def _record_evaluated(self, event: dict[str, Any]) -> None:
        step = int(event["step"])
        run = self._job.runs.filter(kind=TrainingRunKind.EVALUATION, step=step).first()
        payload = {**event, "kind": "evaluated", "run": None if run is None else run.run_id}
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            self._append([NewEvent("train.evaluated", payload)])
        self._evaluated.add(step)
        self._share()

    def _share(self) -> None:
        """Lets other hosts go on from here; a store that is away is tried again at the next step,
        and must be there at the end."""
        try:
            self._record_share()
        except BlobError as error:
            log.warning("step not shared", training_job=self._job.pk, error=str(error))

    def _record_share(self) -> None:
        step = step_in(self._folder)
        taken = share(self._job)
        if taken is not None:
            with transaction.atomic():
                hold_fence(self._ctx.fence)
                sharing.record(taken, version=max(0, step))

    def _append(self, events: list[NewEvent]) -> None:
        append(stream_id=self._job.stream_id, items=events, fence=self._ctx.fence)
        self._origin.tell(events, self._ctx.fence)

    def _finish(self, status: client.JobStatus) -> None:
        try:
            self._record_share()
        except BlobError as error:
            raise Retryable(f"the result cannot be stored: {error}", delay_s=30.0) from error
        with transaction.atomic():
            hold_fence(self._ctx.fence)
            give_back(
                self._job,
                state=TrainingState.COMPLETED,
                adapter_path=str(status.adapter),
                adapter_sha256=status.adapter_sha256,
                chosen_step=status.chosen_step,
                chosen_reason=status.reason,
                ended_at=timezone.now(),
            )
            self._append(
                [
                    NewEvent(
                        "train.ended",
                        {
                            "state": TrainingState.COMPLETED,
                            "error": "",
                            "step": status.chosen_step,
                        },
                    )
                ]
            )
            self._origin.ended(self._job)
            schedule()
        pack(TrainingJob.objects.select_related("stream").get(pk=self._job.pk))


def told_sources(work_harness: Any) -> set[str]:
    """Keys of tasks that stand in the harness as demonstrations: their answers are told."""
    return {demonstration.source for demonstration in load_harness(work_harness).demonstrations}


def _told_so_far(job: TrainingJob, kind: str) -> list[dict[str, Any]]:
    """What earlier attempts have recorded, in order."""
    events = Event.objects.filter(stream_id=job.stream_id, kind=kind).order_by("seq")
    return [event.payload for event in events]


def _mark_running(job: TrainingJob, fence: Fence) -> None:
    with transaction.atomic():
        hold_fence(fence)
        waiting = TrainingJob.objects.filter(pk=job.pk, state=TrainingState.QUEUED)
        waiting.filter(started_at__isnull=True).update(started_at=timezone.now())
        waiting.update(state=TrainingState.RUNNING)
    job.refresh_from_db()
