"""The manifest of a training job: frozen at submission, hashed, and never edited.

Its canonical JSON form is the identity of the job: a resume refuses a checkpoint of another one.
Every default is written out, so a later change of a default does not change what an old job means.
Pure: no torch, no Django. Paths are strings as the runner will see them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from training.errors import ConfigurationError
from training.filters import FilterSpec
from training.records import read_record, write_record
from training.schedule import CoefficientSchedule, RateSpec
from training.types import ObjectiveSpec

ALL_LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class ModelPart:
    """What is trained."""

    folder: str
    """A prepared model folder."""
    name: str = ""
    content_sha256: str = ""
    """Of the weights file, where the submitter knows it; recorded, and checked if not empty."""
    dtype: str = "float32"
    initial_adapter: str | None = None
    """An adapter folder to go on from; its rank and alpha must be those of `lora`, so not with
    `lora: null`."""


@dataclass(frozen=True, slots=True)
class LoraPart:
    """The adapter."""

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = ALL_LINEAR


@dataclass(frozen=True, slots=True)
class OptimiserPart:
    """AdamW, all parameters named."""

    rate: RateSpec = field(default_factory=RateSpec)
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-8
    weight_decay: float = 0.0
    clip_norm: float = 1.0


@dataclass(frozen=True, slots=True)
class BatchPart:
    """What one step trains on, and in which pieces."""

    groups_per_step: int = 4
    group_size: int = 8
    budget_tokens: int = 512
    """Input tokens of one forward pass."""
    head_chunk: int = 128
    updates_per_step: int = 1
    """Optimiser steps on the rows of one step; above 1 the ratio leaves 1 and clipping matters."""
    max_staleness: int = 0
    """Rows sampled by weights up to so many versions older are trained on; older ones are dropped
    and counted."""


@dataclass(frozen=True, slots=True)
class ExecutionPart:
    """Where and how it runs."""

    backend: str = "local"
    """`local`: one process. `torchrun`: `processes` of them on this host, each with a share.
    `tinker`: the server that `tinker` names computes, and keeps the weights."""
    processes: int = 1
    shard: str = "ddp"
    """How processes hold the weights: `ddp`, all of them on each; `fsdp2`, the blocks in shards."""
    device: str = "cpu"
    threads: int = 2
    is_checkpointed: bool = False
    """Recompute blocks in the backward pass."""
    measures_entropy: bool = True
    interpreter: str = ""
    """Python that runs the job, with the packages of its backend; empty: the worker's own."""


@dataclass(frozen=True, slots=True)
class TinkerPart:
    """The server of a job whose backend is `tinker`. Its key is never written here."""

    base_url: str
    model: str
    """Name of the base model there; `model.folder` holds its tokenizer and configuration."""
    secret: str = ""
    """Whose key is sent: the name of a model of the project. Empty: a server without keys."""
    timeout_s: float = 900.0
    """Of one call."""


@dataclass(frozen=True, slots=True)
class SamplerPart:
    """Where rollouts are sampled."""

    kind: str = "server"
    """`server`: the model server holds the weights. `vllm`: it passes requests on to a vLLM server,
    which is asked for adapters by name."""
    base_url: str = ""
    """Of the vLLM server, without `/v1`."""
    model: str = ""
    """What the base is called there; empty: `model.name`."""
    max_mismatch: float = 0.0
    """Root mean square of the differences between the log-probs as sampled and the trainer's, above
    which a step is refused; 0: any."""


@dataclass(frozen=True, slots=True)
class EvaluationPart:
    """Held-out evaluation while training, on tasks of the split `select`; never on `test`."""

    every_steps: int = 0
    """After so many steps, and after the last; 0: never, and the last checkpoint is the result."""
    min_coverage: float = 0.8
    """Share of rollouts with a score below which an evaluation chooses nothing."""
    timeout_s: float = 3600.0
    """How long an evaluation may take."""


@dataclass(frozen=True, slots=True)
class KeepingPart:
    """What stays on disk, beside the best by evaluation."""

    checkpoints: int = 2
    """The last so many."""


@dataclass(frozen=True, slots=True)
class BudgetPart:
    """Limits; every wait has one."""

    steps: int = 10
    rows_timeout_s: float = 1800.0
    """How long a step waits for its rollouts."""
    update_timeout_s: float = 900.0
    """How long one pass over the rows may take before the job counts as hung."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything that decides the result of a training job."""

    model: ModelPart
    lora: LoraPart | None = field(default_factory=LoraPart)
    """None trains every weight: checkpoints and published versions are whole models then."""
    objective: ObjectiveSpec = field(default_factory=ObjectiveSpec)
    lambda_schedule: Mapping[str, Any] | None = None
    """JSON form of `schedule.CoefficientSchedule`; None: constant at objective.lambda_env."""
    filters: FilterSpec = field(default_factory=FilterSpec)
    optimiser: OptimiserPart = field(default_factory=OptimiserPart)
    batch: BatchPart = field(default_factory=BatchPart)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the sampler, for the record; `temperature` must be the policy's."""
    sampler: SamplerPart = field(default_factory=SamplerPart)
    data: Mapping[str, Any] = field(default_factory=dict)
    """Tasks, environments, harness: for the record."""
    seed: int = 0
    """Of the adapter's initial values."""
    execution: ExecutionPart = field(default_factory=ExecutionPart)
    tinker: TinkerPart | None = None
    evaluation: EvaluationPart = field(default_factory=EvaluationPart)
    keeping: KeepingPart = field(default_factory=KeepingPart)
    budgets: BudgetPart = field(default_factory=BudgetPart)
    version: int = 1

    @classmethod
    def from_json(cls, values: object) -> Manifest:
        """Read and check; raises ConfigurationError that names the field."""
        manifest = read_record(cls, values, where="manifest")
        manifest.validate()
        return manifest

    def to_json(self) -> dict[str, Any]:
        """All fields, defaults included."""
        written: dict[str, Any] = write_record(self)
        return written

    @property
    def sha256(self) -> str:
        """Hash of the canonical form."""
        return hashlib.sha256(self.canonical().encode()).hexdigest()

    def canonical(self) -> str:
        """Sorted keys, no spaces, no nan."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    def validate(self) -> None:
        """Refuse what can only be a mistake; raises ConfigurationError."""
        positive = {
            "lora.rank": 1 if self.lora is None else self.lora.rank,
            "optimiser.rate.base": self.optimiser.rate.base,
            "batch.groups_per_step": self.batch.groups_per_step,
            "batch.group_size": self.batch.group_size,
            "batch.budget_tokens": self.batch.budget_tokens,
            "batch.head_chunk": self.batch.head_chunk,
            "batch.updates_per_step": self.batch.updates_per_step,
            "execution.threads": self.execution.threads,
            "execution.processes": self.execution.processes,
            "keeping.checkpoints": self.keeping.checkpoints,
            "evaluation.timeout_s": self.evaluation.timeout_s,
            "budgets.steps": self.budgets.steps,
            "budgets.rows_timeout_s": self.budgets.rows_timeout_s,
            "budgets.update_timeout_s": self.budgets.update_timeout_s,
            "objective.policy_temperature": self.objective.policy_temperature,
            "objective.env_temperature": self.objective.env_temperature,
        }
        for name, value in positive.items():
            if not value > 0:
                raise ConfigurationError(f"manifest.{name}: {value} is not positive")
        for name, count in {
            "evaluation.every_steps": self.evaluation.every_steps,
            "batch.max_staleness": self.batch.max_staleness,
        }.items():
            if count < 0:
                raise ConfigurationError(f"manifest.{name}: {count} is not 0 or more")
        if not 0.0 <= self.evaluation.min_coverage <= 1.0:
            raise ConfigurationError("manifest.evaluation.min_coverage: must be between 0 and 1")
        if self.lora is None and self.model.initial_adapter is not None:
            raise ConfigurationError(
                "manifest.model.initial_adapter: where every weight is trained (lora: null), go on "
                "from merged weights: a model folder in model.folder"
            )
        if self.objective.lambda_env < 0:
            raise ConfigurationError("manifest.objective.lambda_env: must be 0 or more")
        if self.execution.backend not in ("local", "torchrun", "tinker"):
            raise ConfigurationError(
                f"manifest.execution.backend: {self.execution.backend!r} is not one of "
                "local, torchrun, tinker"
            )
        self._validate_tinker()
        self._validate_sampler()
        if self.execution.backend != "torchrun" and self.execution.processes != 1:
            raise ConfigurationError(
                f"manifest.execution.processes: {self.execution.processes} need the backend "
                "torchrun"
            )
        if self.execution.shard not in ("ddp", "fsdp2"):
            raise ConfigurationError(
                f"manifest.execution.shard: {self.execution.shard!r} is not one of ddp, fsdp2"
            )
        if self.execution.backend != "torchrun" and self.execution.shard != "ddp":
            raise ConfigurationError(
                f"manifest.execution.shard: {self.execution.shard} needs the backend torchrun"
            )
        if self.model.dtype not in ("float32", "bfloat16"):
            raise ConfigurationError(
                f"manifest.model.dtype: {self.model.dtype!r} is not one of float32, bfloat16"
            )
        if self.lambda_schedule is not None:
            CoefficientSchedule.from_mapping(self.lambda_schedule)
        temperature = self.sampling.get("temperature")
        if temperature is not None and temperature != self.objective.policy_temperature:
            raise ConfigurationError(
                f"manifest.objective.policy_temperature: {self.objective.policy_temperature} but "
                f"rollouts are sampled at {temperature}; the ratio would compare two distributions"
            )

    def _validate_sampler(self) -> None:
        part = self.sampler
        if part.kind not in ("server", "vllm"):
            raise ConfigurationError(
                f"manifest.sampler.kind: {part.kind!r} is not one of server, vllm"
            )
        if not part.max_mismatch >= 0.0:
            raise ConfigurationError("manifest.sampler.max_mismatch: must be 0 or more")
        if part.kind != "vllm":
            return
        if not part.base_url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"manifest.sampler.base_url: {part.base_url!r} is no http(s) address"
            )
        if self.lora is None:
            raise ConfigurationError(
                "manifest.sampler.kind: a vLLM server takes adapters by URL, not whole models; "
                "train an adapter, or sample on the model server"
            )
        if self.tinker is not None:
            raise ConfigurationError(
                "manifest.sampler.kind: weights on a Tinker server are sampled there"
            )

    def _validate_tinker(self) -> None:
        if self.tinker is None:
            if self.execution.backend == "tinker":
                raise ConfigurationError("manifest.tinker: the backend tinker needs a server")
            return
        if self.execution.backend != "tinker":
            raise ConfigurationError(
                f"manifest.tinker: a server is named, but the backend is {self.execution.backend}"
            )
        if not self.tinker.base_url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"manifest.tinker.base_url: {self.tinker.base_url!r} is no http(s) address"
            )
        if self.lora is None:
            raise ConfigurationError("manifest.lora: null, but a Tinker server trains adapters")
        if not self.tinker.timeout_s > 0:
            raise ConfigurationError("manifest.tinker.timeout_s: must be positive")
        for name in ("policy_temperature", "env_temperature"):
            value = getattr(self.objective, name)
            if value != 1.0:
                raise ConfigurationError(
                    f"manifest.objective.{name}: {value:g}, but the Tinker protocol computes at "
                    "temperature 1; sample and train at 1 there"
                )
        if self.model.initial_adapter is not None:
            raise ConfigurationError(
                "manifest.model.initial_adapter: a Tinker server begins with its base model"
            )
