"""From settings to the frozen manifest of a job, and what it is estimated to take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from django.conf import settings as django_settings

from orchestrator.agents.models import EndpointKind
from orchestrator.runs.models import RunState
from orchestrator.trainings.origins import Work
from training.errors import ConfigurationError
from training.estimate import ModelShape, Pace, estimate
from training.manifest import (
    BatchPart,
    BudgetPart,
    EvaluationPart,
    ExecutionPart,
    LoraPart,
    Manifest,
    ModelPart,
    OptimiserPart,
    SamplerPart,
    TinkerPart,
)
from training.models import Checkpoint, TrainingRun, TrainingRunKind
from training.schedule import RateSpec
from training.types import AdvantageMode, AdvantageSpec, EnvNorm, ObjectiveSpec

WHOLE_MODEL_FILE = "model.safetensors"
MAX_MISMATCH = 0.5
"""Of log-probs; weights in bf16 against fp32 differ by some hundredths, another model by more."""
LOOKED_BACK = 20
"""Newest steps of the same model from which the pace is taken."""


def manifest_of(work: Work, **data: Any) -> Manifest:
    """Everything that decides the result, written out; `data` is for the record.

    Raises ConfigurationError or ValueError that names the field.
    """
    settings = work.settings
    if work.model.kind == EndpointKind.TINKER:
        return _on_a_server(work, data)
    begins_with = work.model.adapter_path
    is_whole = is_whole_model(begins_with)
    return Manifest(
        model=ModelPart(
            folder=begins_with if is_whole else str(django_settings.MODEL_DIR),
            name=work.model.model,
            initial_adapter=None if is_whole else begins_with or None,
        ),
        **_common(work, data),
        sampler=_sampler_of(work),
        execution=ExecutionPart(
            backend="local" if settings.processes == 1 else "torchrun",
            processes=settings.processes,
            shard=settings.shard,
            device=settings.device,
            threads=settings.threads,
            measures_entropy=False,
            interpreter=settings.interpreter,
        ),
    )


def _on_a_server(work: Work, data: Mapping[str, Any]) -> Manifest:
    """Where a Tinker server trains: what computes is its own, so only the interpreter is ours."""
    model, settings = work.model, work.settings
    return Manifest(
        model=ModelPart(
            folder=model.tokenizer_path or str(django_settings.MODEL_DIR),
            name=model.model,
            initial_adapter=model.adapter_path or None,
        ),
        **_common(work, data),
        execution=ExecutionPart(
            backend="tinker",
            processes=settings.processes,
            threads=settings.threads,
            measures_entropy=False,
            interpreter=settings.interpreter,
        ),
        tinker=TinkerPart(base_url=model.base_url, model=model.model, secret=model.name),
    )


def _common(work: Work, data: Mapping[str, Any]) -> dict[str, Any]:
    """What does not depend on where the weights are."""
    settings = work.settings
    return {
        "lora": None
        if settings.full_weights
        else LoraPart(rank=settings.lora_rank, alpha=settings.lora_alpha),
        "objective": ObjectiveSpec(
            lambda_env=settings.env_loss_weight,
            env_norm=EnvNorm(settings.env_normalisation),
            policy_temperature=settings.temperature,
            advantage=AdvantageSpec(mode=AdvantageMode(settings.advantage)),
        ),
        "optimiser": OptimiserPart(
            rate=RateSpec(base=settings.learning_rate, warmup_steps=settings.warmup_steps),
            clip_norm=settings.clip_norm,
        ),
        "batch": BatchPart(
            groups_per_step=settings.groups,
            group_size=settings.samples,
            budget_tokens=settings.budget_tokens,
        ),
        "sampling": {"temperature": settings.temperature},
        "data": {
            "environment_sha256": work.environment_version.sha256,
            "rubric_sha256": work.rubric_version.sha256,
            "harness_sha256": work.harness.sha256,
            **data,
        },
        "seed": work.seed,
        "evaluation": EvaluationPart(every_steps=settings.evaluate_every),
        "budgets": BudgetPart(steps=settings.steps),
    }


def _sampler_of(work: Work) -> SamplerPart:
    """Where the model server has a vLLM server sample, the trainer compares itself with that."""
    if not django_settings.VLLM_URL or work.model.base_url:
        return SamplerPart()
    return SamplerPart(
        kind="vllm",
        base_url=django_settings.VLLM_URL,
        model=django_settings.VLLM_MODEL,
        max_mismatch=MAX_MISMATCH,
    )


def is_whole_model(folder: str) -> bool:
    """Whether weights that were trained here are a model folder, not an adapter."""
    return bool(folder) and (Path(folder) / WHOLE_MODEL_FILE).is_file()


def estimate_of(manifest: Manifest) -> dict[str, Any]:
    """`training.estimate.Estimate` as JSON; with `error` alone where the model cannot be read."""
    if manifest.tinker is not None:
        return {
            "sentence": f"{manifest.tinker.base_url} computes the passes, so their time and memory "
            "are not known before the first steps."
        }
    try:
        shape = ModelShape.of_folder(Path(manifest.model.folder))
    except ConfigurationError as error:
        return {"error": str(error)}
    return asdict(estimate(manifest, shape, _pace(manifest)))


def _pace(manifest: Manifest) -> Pace:
    """Medians over the newest steps that the same model was trained for on such a device."""
    steps = Checkpoint.objects.filter(
        training_job__manifest__model__name=manifest.model.name,
        training_job__manifest__execution__device=manifest.execution.device,
    ).order_by("-id")[:LOOKED_BACK]
    metrics = [step.metrics for step in steps]
    runs = (
        TrainingRun.objects.filter(
            kind=TrainingRunKind.STEP,
            run__state=RunState.COMPLETED,
            training_job__manifest__model__name=manifest.model.name,
        )
        .select_related("run")
        .order_by("-id")[:LOOKED_BACK]
    )
    seconds = [
        (each.run.ended_at - each.run.started_at).total_seconds() / n
        for each in runs
        if each.run.ended_at and each.run.started_at and (n := each.run.rollouts.count())
    ]
    return Pace(
        tokens_per_rollout=_median(
            [m["row_tokens"] / m["rollouts"] for m in metrics if m.get("rollouts")]
        ),
        update_tokens_per_s=_median([m["tokens_per_s"] for m in metrics if m.get("tokens_per_s")]),
        rollout_s=_median(seconds),
    )


def _median(values: list[float]) -> float | None:
    return median(values) if values else None
