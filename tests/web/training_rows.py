"""A training as rows, for pages to show: steps, groups, evaluations, an alarm, checkpoints."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from orchestrator.environments.models import Split, Task
from orchestrator.events.services import NewEvent, append, create_stream
from orchestrator.projects.models import Project
from orchestrator.trainings.settings import TrainSettings
from orchestrator.trainings.sweeps import start_sweep
from tests.base import People
from tests.web.build import make_harness, make_rollout, make_run, observation
from training.manifest import Manifest, ModelPart
from training.models import (
    Checkpoint,
    Sweep,
    TrainingAlarm,
    TrainingJob,
    TrainingRun,
    TrainingRunKind,
)

STEPS = 8
REWARDS = ((1.0, 0.0, 1.0), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
"""Of the siblings of each task; the second and third group teach nothing."""


def make_trained_job(project: Project, folder: Path | str = "", **overrides: Any) -> TrainingJob:
    """Eight steps of which the fifth was skipped, groups of three tasks, one alarm."""
    run = make_run(project)
    fields: dict[str, Any] = {
        "name": "Learn the files",
        "origin": "own",
        "folder": str(folder or "training/1"),
        "manifest": Manifest(ModelPart(folder="models/tiny", name="tiny")).to_json(),
        "manifest_sha256": "5e" * 32,
        "state": "running",
        "step": STEPS,
        "total_steps": 12,
        "device": "cpu",
        "estimate": {"sentence": "96 rollouts in 12 steps, 4 min to 9 min and 420 MB on cpu."},
        "settings": TrainSettings(steps=12).to_json(),
        "environment_version": run.environment_version,
        "rubric_version": run.rubric_version,
        "model": run.model,
        "harness": make_harness(project),
        "chosen_step": 0,
        **overrides,
    }
    job = TrainingJob.objects.create(
        project=project, stream=create_stream(project=project, kind="training_job"), **fields
    )
    tasks = list(Task.objects.filter(version=run.environment_version, split=Split.TRAIN))
    held_out = list(Task.objects.filter(version=run.environment_version, split=Split.SELECT))
    for step in range(STEPS + 1):
        if step:
            _step(job, step, tasks)
        if step % 4 == 0:
            _evaluation(job, step, held_out)
    TrainingAlarm.objects.create(
        training_job=job,
        signal="roles",
        level="warn",
        step=7,
        before=0.0,
        value=0.12,
        sentence="12% of rollouts write role markers, 0% at first.",
    )
    return job


def _step(job: TrainingJob, step: int, tasks: list[Task]) -> None:
    is_skipped = step == 5
    metrics = {
        "step": step,
        "total": 12,
        "reward_mean": 0.3 + 0.04 * step + 0.02 * math.sin(step),
        "reward_n": 9,
        "reward_masked": 1 if step == 3 else 0,
        "groups": 3,
        "groups_without_spread": 2 if step > 4 else 1,
        "rollouts": 9,
        "rollouts_truncated": 1,
        "loss": 0.02,
        "policy_loss": 0.01,
        "env_loss": 2.4 / step,
        "weighted_env_loss": 0.12 / step,
        "world_ce_selected_per_token": 2.4 / math.sqrt(step),
        "world_policy_loss_ratio": 1.5,
        "kl_k3": 0.001 * step,
        "entropy_sampled": 0.9 - 0.05 * step,
        "ratio_outside_share": 0.02,
        "log_ratio_sd": 0.004,
        "grad_norm": None if is_skipped else 0.8,
        "is_skipped": is_skipped,
        "learning_rate": 1e-4,
        "tokens_per_s": 75.0,
        "rss_mb": 800.0 + step,
        "update_s": 12.5,
        "staleness_max": 0,
    }
    append(stream_id=job.stream_id, items=[NewEvent("train.step", metrics)])
    Checkpoint.objects.create(training_job=job, step=step, path=f"v{step:04d}", metrics=metrics)
    run = _run(job, "train", f"ECHO step {step} of 12")
    TrainingRun.objects.create(training_job=job, run=run, kind=TrainingRunKind.STEP, step=step)
    for task, rewards in zip(tasks, REWARDS, strict=False):
        for replicate, reward in enumerate(rewards):
            if step == 3 and replicate == 2:
                state: dict[str, Any] = {"state": "errored", "message": "it broke"}
            else:
                state = {"score": reward}
            rollout = make_rollout(run, task, replicate=replicate, harness=job.harness, **state)
            text = "wc -l list1.txt" if reward else "cat list1.txt"
            action = {"step": 1, "text": text, "form": "command", "command": text}
            append(
                stream_id=rollout.stream_id,
                items=[NewEvent("action", action), observation(("env_output", "3 list1.txt\n"))],
            )


def _evaluation(job: TrainingJob, step: int, tasks: list[Task]) -> None:
    run = _run(job, "evaluate", f"Held-out evaluation after step {step}")
    mean = 0.3 + 0.05 * step
    TrainingRun.objects.create(
        training_job=job,
        run=run,
        kind=TrainingRunKind.EVALUATION,
        step=step,
        mean=mean,
        n_scored=len(tasks),
    )
    for task in tasks:
        make_rollout(run, task, score=mean, harness=job.harness)
    told = {"step": step, "mean": mean, "n_scored": 3, "n_errored": 0, "run": run.pk}
    payload = {**told, "pool_ce": 2.2 - 0.1 * step, "pool_warning_ce": 1.0, "pool_tokens": 120}
    append(stream_id=job.stream_id, items=[NewEvent("train.evaluated", payload)])


def _run(job: TrainingJob, purpose: str, label: str) -> Any:
    return make_run(
        job.project,
        purpose=purpose,
        label=label,
        environment_version=job.environment_version,
        rubric_version=job.rubric_version,
        model=job.model,
    )


def make_sweep(people: People) -> Sweep:
    """Two values over two seeds, queued; the first job has the device if one is free."""
    run = make_run(people.project)
    return start_sweep(
        actor=people.editor,
        project=people.project,
        name="How much λ",
        environment_version=run.environment_version,
        rubric_version=run.rubric_version,
        model=run.model,
        harness=make_harness(people.project),
        settings=TrainSettings(),
        lambdas=[0.0, 0.05],
        seeds=[0, 1],
    )
