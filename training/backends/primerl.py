"""Hands a whole job to prime-rl: its configuration as TOML, checked before it is written.

prime-rl has ECHO (`algo.type = "echo"`) and an OpenEnv task set, so that nothing of ours runs
there. Its objective is not ours in every part, though: what has no counterpart is told
(`Export.notes`), never dropped in silence, and what would mean another thing under the same number
is told too. Keys and meanings: prime-rl at 559b447, package prime-rl-configs 0.4.0, where an
unknown key is an error.

Pure but for `validate`, which asks prime-rl's own classes in an interpreter that has them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from training.errors import ConfigurationError
from training.manifest import LoraPart, Manifest, OptimiserPart
from training.schedule import RateKind
from training.types import (
    AdvantageMode,
    EnvNorm,
    EnvTarget,
    MismatchCorrection,
    ObjectiveSpec,
    PgNorm,
    PolicyLoss,
)

SCHEMA = "prime-rl-configs 0.4.0"
NO_CLIP = 1e9
"""TOML has no null, and leaving `max_norm` out means 1."""
VALIDATE_LIMIT_S = 120.0
_VALIDATE = """
import sys, tomllib
from prime_rl.configs.rl import RLConfig
try:
    RLConfig.model_validate(tomllib.load(sys.stdin.buffer))
except ValueError as error:
    print(error)
    sys.exit(3)
"""


@dataclass(frozen=True, slots=True)
class Source:
    """An environment that prime-rl's workers can reach."""

    name: str
    base_url: str
    resets: tuple[Mapping[str, Any], ...]
    """Parameters of `reset`, one per task."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the manifest does not know: where it runs, and on which weights."""

    model: str
    """As prime-rl loads it: a name of the model hub, or a folder over there."""
    sources: tuple[Source, ...]
    max_completion_tokens: int = 512
    """Of one turn."""
    seq_len: int = 4096
    """Tokens of one row."""
    checkpoint_every: int = 10
    train_nodes: int = 0
    """0: one machine."""
    inference_nodes: int = 0
    slurm_job: str = ""
    """Name of a SLURM job; empty: started by hand."""


@dataclass(frozen=True, slots=True)
class Export:
    """A configuration, and what it could not say."""

    config: Mapping[str, Any]
    notes: tuple[str, ...] = field(default_factory=tuple)

    @property
    def toml(self) -> str:
        """With the notes as comments on top."""
        head = [f"# Written by Switchback for {SCHEMA}.", *(f"# Differs: {n}" for n in self.notes)]
        return "\n".join(head) + "\n\n" + tomli_w.dumps(dict(self.config))


def _trained(lora: LoraPart | None) -> dict[str, Any]:
    """Without a `lora` section prime-rl trains every weight."""
    if lora is None:
        return {}
    return {
        "lora": {
            "rank": lora.rank,
            "alpha": float(lora.alpha),
            "target_modules": list(lora.targets),
        }
    }


def export(manifest: Manifest, place: Place) -> Export:
    """The job as prime-rl runs it. Raises ConfigurationError for what it cannot be told."""
    _check(manifest, place)
    batch, objective = manifest.batch, manifest.objective
    config: dict[str, Any] = {
        "max_steps": manifest.budgets.steps,
        "seq_len": place.seq_len,
        "model": {"name": place.model},
        "trainer": {
            "model": _trained(manifest.lora),
            "optim": _optimiser(manifest.optimiser),
            "scheduler": _scheduler(manifest),
            "loss": _loss(objective),
        },
        "orchestrator": {
            "batch_size": batch.groups_per_step * batch.group_size,
            "group_size": batch.group_size,
            "max_off_policy_steps": batch.max_staleness,
            "algo": _algorithm(objective),
            "train": {
                "sampling": {
                    "temperature": objective.policy_temperature,
                    "max_completion_tokens": place.max_completion_tokens,
                },
                "source": [_source(source) for source in place.sources],
            },
        },
        "inference": {},
        "ckpt": {"interval": place.checkpoint_every, "keep_last": manifest.keeping.checkpoints},
    }
    if place.train_nodes:
        config["deployment"] = {
            "type": "multi_node",
            "num_train_nodes": place.train_nodes,
            "num_infer_nodes": place.inference_nodes,
        }
    if place.slurm_job:
        config["slurm"] = {"job_name": place.slurm_job}
    return Export(config, tuple(_notes(manifest)))


def validate(toml: str, *, python: Path | str) -> str:
    """What prime-rl's own classes object to; empty if nothing.

    `python` is an interpreter with prime-rl-configs. Raises ConfigurationError where it has none,
    or does not answer within two minutes.
    """
    command = [str(python), "-c", _VALIDATE]
    try:
        ended = subprocess.run(
            command, input=toml.encode(), capture_output=True, timeout=VALIDATE_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigurationError(f"{python} could not check the configuration: {error}") from error
    if ended.returncode == 0:
        return ""
    if ended.returncode == 3:
        return ended.stdout.decode(errors="replace").strip()
    last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:]
    raise ConfigurationError(
        f"{python} cannot check the configuration: {' '.join(last)}. "
        "Install prime-rl-configs there, or export without a check."
    )


def _check(manifest: Manifest, place: Place) -> None:
    if not manifest.objective.use_rl:
        raise ConfigurationError("prime-rl has no training without rewards (use_rl = false)")
    if not place.sources:
        raise ConfigurationError("prime-rl needs an environment that its workers can reach")
    for source in place.sources:
        if not source.base_url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"{source.name}: {source.base_url!r} is no address that another machine can reach"
            )
        if not source.resets:
            raise ConfigurationError(f"{source.name}: no tasks to train on")


def _optimiser(part: OptimiserPart) -> dict[str, Any]:
    return {
        "type": "adamw",
        "lr": part.rate.base,
        "betas1": part.beta1,
        "betas2": part.beta2,
        "weight_decay": part.weight_decay,
        "max_norm": part.clip_norm or NO_CLIP,
    }


def _scheduler(manifest: Manifest) -> dict[str, Any]:
    rate = manifest.optimiser.rate
    lowest = rate.base * rate.floor
    if rate.kind is RateKind.COSINE:
        return {"type": "cosine", "warmup_steps": rate.warmup_steps, "min_lr": lowest}
    if rate.kind is RateKind.LINEAR:
        decay = max(rate.horizon_steps - rate.warmup_steps, 0)
        return {
            "type": "linear",
            "warmup_steps": rate.warmup_steps,
            "decay_steps": decay,
            "min_lr": lowest,
        }
    if rate.warmup_steps:
        # Their constant schedule has no warm-up; the linear one without a decay is just that.
        return {"type": "linear", "warmup_steps": rate.warmup_steps, "decay_steps": 0}
    return {"type": "constant"}


def _loss(objective: ObjectiveSpec) -> dict[str, Any]:
    low, high = objective.dppo_low, objective.dppo_high
    if objective.policy_loss is not PolicyLoss.DPPO:
        return {"type": "default", "kl_tau": 1e-3}
    return {
        "type": "default",
        "dppo_mask_low": low,
        "dppo_mask_high": high,
        "kl_tau": objective.log_ratio_penalty,
    }


def _algorithm(objective: ObjectiveSpec) -> dict[str, Any]:
    """ECHO on user turns, since that is how their OpenEnv task set delivers observations.

    Their default selects tool turns alone: no token at all, and no error.
    """
    if objective.lambda_env == 0.0:
        return {"type": "grpo"}  # a weight of 0 is refused there
    return {"type": "echo", "roles": {"user": {"alpha": objective.lambda_env}}}


def _source(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "env": {
            "taskset": {
                "id": "openenv",
                "base_url": source.base_url,
                "resets": [dict(reset) for reset in source.resets],
            },
            "player": {"harness": {"id": "null"}, "runtime": {"type": "subprocess"}},
        },
    }


def _notes(manifest: Manifest) -> Iterator[str]:
    objective, rate = manifest.objective, manifest.optimiser.rate
    yield from _loss_notes(objective)
    yield from _env_notes(objective)
    if manifest.lambda_schedule is not None:
        yield f"λ has a schedule; prime-rl keeps it at {objective.lambda_env:g}."
    if manifest.filters.is_active or manifest.filters.volatile_spans:
        yield "filters of rollouts and of volatile spans: prime-rl takes a function of yours."
    if manifest.optimiser.eps != 1e-8:
        yield f"Adam's eps is {manifest.optimiser.eps:g} here; prime-rl cannot set it (1e-8)."
    if rate.kind is not RateKind.CONSTANT and rate.horizon_steps != manifest.budgets.steps:
        yield "the learning rate falls to its floor at the last step, not at horizon_steps."
    if manifest.batch.updates_per_step != 1:
        yield f"updates_per_step is {manifest.batch.updates_per_step} here; prime-rl takes one."
    if manifest.evaluation.every_steps:
        yield "held-out evaluations: measure the imported checkpoints here."
    if manifest.model.initial_adapter is not None:
        yield "the job goes on from an adapter; merge it into the model that prime-rl loads."


def _loss_notes(objective: ObjectiveSpec) -> Iterator[str]:
    if objective.policy_loss is not PolicyLoss.DPPO:
        yield (
            f"policy loss {objective.policy_loss.value}: prime-rl masks tokens whose probability "
            "moved by more than 0.2 (DPPO) and adds 1e-3 · (log ratio)²."
        )
    if objective.advantage.mode is not AdvantageMode.CENTRE:
        yield (
            f"advantage {objective.advantage.mode.value}: prime-rl takes the reward minus the "
            "mean of the group."
        )
    if objective.pg_norm is not PgNorm.TOKEN_MEAN:
        yield f"pg_norm {objective.pg_norm.value}: prime-rl divides by all action tokens of a step."
    if objective.kl_coef:
        yield f"KL to a reference ({objective.kl_coef:g}): not with this algorithm of prime-rl."
    if objective.mismatch is not MismatchCorrection.NONE:
        yield f"mismatch correction {objective.mismatch.value}: prime-rl has its own."
    if not objective.truncated_in_rl:
        yield "truncated rollouts get a policy gradient in prime-rl."


def _env_notes(objective: ObjectiveSpec) -> Iterator[str]:
    if objective.lambda_env == 0.0:
        return
    if objective.env_norm is not EnvNorm.GLOBAL_TOKENS:
        yield (
            f"λ {objective.lambda_env:g} under {objective.env_norm.value}: prime-rl divides by "
            "all environment targets of a step (global_tokens), where the same number weighs "
            "differently."
        )
    if objective.env_target is EnvTarget.ENV_ONLY or objective.lambda_roles:
        yield "warnings inside an observation are trained on: prime-rl knows roles of turns only."
    if objective.env_temperature != objective.policy_temperature:
        yield (
            f"the environment term is taken at T = {objective.policy_temperature:g}, the "
            f"sampler's, not at {objective.env_temperature:g}."
        )
    if objective.max_env_tokens_per_observation is not None:
        yield "the cap on targets per observation: prime-rl takes a function of yours."
