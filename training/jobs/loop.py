"""The loop of a training job: what one attempt does from its last checkpoint to the last step.

One step: ask for rollouts under the current adapter, wait for their rows, one pass for both losses,
one optimiser step, checkpoint, report, publish, next. Every few steps it asks how well the
published weights do on held-out tasks; the best by that is the result of the job. The state of a
job is its last checkpoint and its row files, so beginning an attempt again is how a job is resumed:
after SIGKILL at any point the result is the same, bit for bit on CPU in fp32, because

- rows of a step are on disk before its update and are never asked for again,
- a checkpoint appears whole or not at all, and carries the metrics of its step,
- publishing the same weights again writes the same bytes,
- evaluations are facts too, and change nothing but which step is chosen.
"""

from __future__ import annotations

import logging
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from training import selection
from training.backends.base import AdamSpec, JobSession
from training.backends.local import ADAPTER_FOLDER, MODEL_FOLDER
from training.behaviour import behaviour_metrics
from training.checkpoint import (
    latest_checkpoint,
    remove_leftovers,
    save_checkpoint,
    sha256_of_file,
    step_name,
)
from training.errors import (
    ConfigurationError,
    DeadlineExceeded,
    NumericalError,
    RowError,
)
from training.filters import apply_filters
from training.jobs.events import EventLog
from training.jobs.folder import (
    EvaluationNeed,
    JobFolder,
    Need,
    read_json,
    version_name,
    write_json,
)
from training.jobs.heartbeat import Heartbeat
from training.jobs.sampler_check import check_rows, check_server
from training.jobs.sessions import open_session
from training.llama import sizes_of
from training.lora import WEIGHTS_FILE
from training.losses import build_streams
from training.manifest import Manifest
from training.markers import role_marker_test
from training.metrics import Metrics, pool_metrics, rss_mb, step_metrics
from training.records import write_record
from training.rows import read_rows
from training.schedule import CoefficientSchedule, learning_rate
from training.tokenizer import ChatTokenizer
from training.trainable import MODEL_FILE
from training.types import ObjectiveSpec, Row
from training.volatile import mark_volatile

log = logging.getLogger("training.runner")

POLL_S = 0.05
SHORT_PHASE_S = 300.0
"""Deadline of phases that only read and write files or load the model."""


class Stopped(BaseException):
    """SIGTERM arrived. Not an Exception: no boundary may take it for a failure."""


class Runner:
    """One attempt at a job."""

    def __init__(
        self,
        job: JobFolder,
        manifest: Manifest,
        heartbeat: Heartbeat,
        stop: threading.Event | None = None,
    ) -> None:
        self.job = job
        self.manifest = manifest
        self.heartbeat = heartbeat
        self.stop = stop or threading.Event()
        self.events = EventLog(job.events_file)
        self.session = self._open_session()
        self.has_role_marker = role_marker_test(Path(manifest.model.folder))
        self._check_model()

    def run(self) -> None:
        """Train to the last step and write done.json."""
        step = self._restore()
        if step == 0 and self.manifest.tinker is not None:
            # The base too is sampled there, under a version of its own.
            self.session.publish(self.job.published, step).result()
        self._check_sampler(step)
        self._evaluate(step)
        while step < self.manifest.budgets.steps:
            step += 1
            rows = self._obtain_rows(step)
            metrics = self._update(step, rows)
            self._save(step, metrics)
            self._publish(step)
            self._evaluate(step)
        choice = selection.choose(
            self.job.evaluations(),
            last_step=step,
            min_coverage=self.manifest.evaluation.min_coverage,
        )
        adapter = self.job.published / version_name(choice.step)
        write_json(
            self.job.done_file,
            {
                "adapter": str(adapter),
                "sha256": sha256_of_file(adapter / self._weights_file.name),
                "step": choice.step,
                "reason": choice.reason,
                "steps": step,
                "manifest_sha256": self.manifest.sha256,
            },
        )

    def _open_session(self) -> JobSession:
        if self.manifest.tinker is None:
            return open_session(self.manifest)
        try:
            from training.jobs import sessions_tinker
        except ModuleNotFoundError as error:
            if error.name != "tinker":
                raise
            raise ConfigurationError(
                f"execution.backend: tinker needs its SDK, which {sys.executable} lacks: "
                "pip install -r requirements/tinker.txt"
            ) from error

        self._enter("connecting", 0, self.manifest.budgets.update_timeout_s)
        return sessions_tinker.open_session(self.job, self.manifest, self.events, self._check_stop)

    @property
    def _weights_file(self) -> Path:
        """Of a checkpoint; what is published has it under the same name."""
        if self.manifest.tinker is not None:
            return Path(ADAPTER_FOLDER, "tinker.json")
        if self.manifest.lora is None:
            return Path(MODEL_FOLDER, MODEL_FILE)
        return Path(ADAPTER_FOLDER, WEIGHTS_FILE)

    def _restore(self) -> int:
        """The last finished step; 0 at the beginning."""
        self._enter("loading", 0)
        for folder in (self.job.path, self.job.checkpoints, self.job.published):
            remove_leftovers(folder)
        for name in ("need", "rows", "evaluate", "scores"):
            (self.job.path / name).mkdir(exist_ok=True)
            remove_leftovers(self.job.path / name)
        ref = latest_checkpoint(self.job.checkpoints, manifest_sha256=self.manifest.sha256)
        if ref is None:
            self.events.append("started", {"step": 0})
            return 0
        self.session.load_state(ref.path).result()
        if not self.events.has("step", ref.step):
            self.events.append("step", dict(ref.state["metrics"]))
        self.events.append("resumed", {"step": ref.step})
        self._publish(ref.step)
        return ref.step

    def _check_sampler(self, step: int) -> None:
        """Before anything is sampled there; later the rows of each step tell."""
        is_base = step == 0 and self.manifest.model.initial_adapter is None
        if self.manifest.sampler.kind == "vllm" and is_base:
            found = check_server(self.manifest, self.session)
            self.events.append("sampler_checked", found)

    def _obtain_rows(self, step: int) -> list[Row]:
        path = self.job.rows_file(step)
        timeout_s = self.manifest.budgets.rows_timeout_s
        self._enter("sampling", step, timeout_s)
        need = self._need(step)
        if not path.exists():
            write_json(self.job.need_file(step), write_record(need))
        started = time.monotonic()
        while not path.exists():
            self._wait(started, timeout_s, f"no rollouts for step {step}", "budgets.rows_timeout_s")
        self._enter("rows", step)
        rows = read_rows(path.read_text(encoding="utf-8"))
        allowed = need.versions(self.manifest.batch.max_staleness)
        current = [row for row in rows if row.weight_version in allowed]
        if not current:
            raise RowError(f"step {step}: none of {len(rows)} rows is of {' or '.join(allowed)}")
        if len(current) < len(rows):
            self.events.append("stale_rows", {"step": step, "dropped": len(rows) - len(current)})
        self._check_ids(current)
        return self._without_volatile(apply_filters(current, self.manifest.filters))

    def _without_volatile(self, rows: list[Row]) -> list[Row]:
        """Times, process ids and the like out of the environment term, where the job wants that."""
        filters = self.manifest.filters
        if not filters.volatile_spans:
            return rows
        tokenizer = ChatTokenizer.from_folder(Path(self.manifest.model.folder))
        return mark_volatile(rows, tokenizer.pieces, filters.volatile_patterns)

    def _wait(self, started: float, timeout_s: float, what: str, field: str) -> None:
        if self.stop.wait(POLL_S):
            raise Stopped
        if time.monotonic() - started > timeout_s:
            raise DeadlineExceeded(f"{what} within {timeout_s:g} s ({field} in the manifest)")

    def _evaluate(self, step: int) -> None:
        """Asks for the held-out score of the weights of this step, where one is due.

        The weights before the first step are measured too, as what the others are held against.
        """
        if not self._is_evaluated(step):
            return
        path, timeout_s = self.job.scores_file(step), self.manifest.evaluation.timeout_s
        self._enter("evaluating", step, timeout_s)
        if not path.exists():
            next_need = self._need(step + 1)
            need = EvaluationNeed(step, next_need.weight_version, next_need.adapter or "")
            write_json(self.job.evaluate_file(step), write_record(need))
        started = time.monotonic()
        while not path.exists():
            what = f"no held-out evaluation of step {step}"
            self._wait(started, timeout_s, what, "evaluation.timeout_s")
        if not self.events.has("evaluated", step):
            scores = read_json(path) or {}
            self.events.append("evaluated", {**scores, "step": step, **self._surprise_at_pool()})

    def _surprise_at_pool(self) -> Metrics:
        """Cross-entropy on the environment's words in rows that nothing is trained on, at T = 1."""
        if not self.job.pool_file.exists():
            return {}
        rows = read_rows(self.job.pool_file.read_text(encoding="utf-8"))
        logprobs = self.session.forward(rows, temperature=1.0).result()
        return pool_metrics(rows, logprobs)

    def _best_step(self) -> int | None:
        found = selection.best(
            self.job.evaluations(), min_coverage=self.manifest.evaluation.min_coverage
        )
        return None if found is None else found.step

    def _need(self, step: int) -> Need:
        previous = step - 1
        adapter = self.manifest.model.initial_adapter
        if previous > 0 or self.manifest.tinker is not None:
            adapter = str(self.job.published / version_name(previous))
        return Need(step=step, weight_version=version_name(previous), adapter=adapter)

    def _update(self, step: int, rows: list[Row]) -> Metrics:
        spec = self._objective(step)
        self._enter("backward", step, self.manifest.budgets.update_timeout_s)
        if spec.needs_scores:
            rows = self.session.scored(rows, spec).result()
        streams = build_streams(rows, spec)
        optimiser = self.manifest.optimiser
        rate = learning_rate(step - 1, optimiser.rate)
        adam = AdamSpec(
            learning_rate=rate,
            beta1=optimiser.beta1,
            beta2=optimiser.beta2,
            eps=optimiser.eps,
            weight_decay=optimiser.weight_decay,
            clip_norm=optimiser.clip_norm,
        )
        metrics: Metrics = {}
        for update in range(self.manifest.batch.updates_per_step):
            self._enter("backward", step, self.manifest.budgets.update_timeout_s)
            passes = self.session.forward_backward(
                rows, streams, spec, on_pack=self._between_packs
            ).result()
            self._enter("step", step)
            if update == 0:
                check_rows(self.manifest.sampler, rows, passes.log_ratios)
            try:
                optim = self.session.optim_step(adam).result()
            except NumericalError as error:
                kept = self.job.rows_file(step)
                raise NumericalError(f"{error}; the last batch is kept in {kept}") from error
            metrics = step_metrics(
                rows=rows,
                streams=streams,
                spec=spec,
                learning_rate=rate,
                passes=passes,
                optim=optim,
            )
        newest = step - 1
        ages = [newest - int(row.weight_version.removeprefix("v") or newest) for row in rows]
        return {
            "step": step,
            **metrics,
            **behaviour_metrics(rows, has_role_marker=self.has_role_marker),
            "staleness_max": max(ages, default=0),
            "rss_mb": rss_mb(),
        }

    def _objective(self, step: int) -> ObjectiveSpec:
        schedule = self.manifest.lambda_schedule
        if schedule is None:
            return self.manifest.objective
        value = CoefficientSchedule.from_mapping(schedule).value(step - 1)
        return replace(self.manifest.objective, lambda_env=value)

    def _save(self, step: int, metrics: Metrics) -> None:
        self._enter("saving", step)
        save_checkpoint(
            self.job.checkpoints,
            step=step,
            manifest_sha256=self.manifest.sha256,
            state={
                "weight_version": version_name(step),
                "metrics": metrics,
                "schedule": write_record(self.manifest.optimiser.rate),
            },
            files=self.session.state_files(),
            keep=self.manifest.keeping.checkpoints,
            best=self._best_step(),
        )
        # After the checkpoint: a crash in between repeats neither the step nor its event.
        self.events.append("step", metrics)

    def _publish(self, step: int) -> None:
        self._enter("publishing", step)
        target = self.job.published / version_name(step)
        stored = self.job.checkpoints / step_name(step) / self._weights_file
        published = target / self._weights_file.name
        if target.exists() and sha256_of_file(published) == sha256_of_file(stored):
            return  # never rewritten under a sampler that may be reading it
        self._forget_published(step)
        version = self.session.publish(self.job.published, step).result()
        self.events.append(
            "published",
            {"step": step, "weight_version": version.name, "sha256": version.sha256},
        )

    def _forget_published(self, step: int) -> None:
        """Adapters of older steps, apart from those that an evaluation may choose."""
        for folder in sorted(self.job.published.glob("v*"))[: -self.manifest.keeping.checkpoints]:
            older = int(folder.name.removeprefix("v"))
            if older < step and not self._is_evaluated(older):
                shutil.rmtree(folder)

    def _is_evaluated(self, step: int) -> bool:
        every = self.manifest.evaluation.every_steps
        return every > 0 and (step % every == 0 or step == self.manifest.budgets.steps)

    def _enter(self, phase: str, step: int, timeout_s: float = SHORT_PHASE_S) -> None:
        self._check_stop()
        self.heartbeat.enter(phase, step=step, timeout_s=timeout_s)
        log.info("step %d: %s", step, phase)

    def _between_packs(self) -> None:
        self.heartbeat.advance()
        self._check_stop()

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise Stopped

    def _check_model(self) -> None:
        expected = self.manifest.model.content_sha256
        if expected:
            found = sha256_of_file(Path(self.manifest.model.folder) / "model.safetensors")
            if found != expected:
                raise ConfigurationError(
                    f"model.content_sha256: {self.manifest.model.folder} has {found[:12]}, "
                    f"the manifest says {expected[:12]}"
                )

    def _check_ids(self, rows: Sequence[Row]) -> None:
        vocabulary, context = sizes_of(Path(self.manifest.model.folder))
        for row in rows:
            if not row.ids or max(row.ids) >= vocabulary or min(row.ids) < 0:
                raise RowError(f"rollout {row.rollout}: ids outside the model's vocabulary")
            if len(row.ids) > context:
                raise RowError(
                    f"rollout {row.rollout}: {len(row.ids)} tokens, the model's context is "
                    f"{context}"
                )
