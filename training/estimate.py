"""How much memory and time a job will take, before it is queued. Pure: shapes and rates, no torch.

Memory follows the sizes that were measured for `training.passes` (SmolLM2 on a CPU, fp32: 1.4 GB
with packs of 512 tokens, 1.9 GB with 1,024). Time comes from what earlier jobs of the same model on
the same kind of device took, and from the number of operations where there are none; the range says
which: a factor of 1.3 to either side, or of 2.5.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.errors import ConfigurationError
from training.manifest import LoraPart, Manifest

RUNTIME_BYTES = 360e6
"""Interpreter, torch and what it keeps."""
CUDA_RUNTIME_BYTES = 900e6
"""Beside it, the context of a CUDA device and its libraries; on the device itself."""
BYTES_PER_UNIT = 58.0
"""Activations per token, layer and hidden unit in fp32: 0.5 GB for 512 tokens of SmolLM2."""
CPU_FLOPS = 41e9
"""Of one core in training: 76 tokens a second of SmolLM2 at four operations per weight."""
CUDA_FLOPS = 0.35 * 989e12
"""35 % of the bf16 peak of one H200."""
MEASURED, UNMEASURED = 1.3, 2.5
"""Factors of the range."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the estimate needs of a model's configuration."""

    layers: int
    hidden: int
    intermediate: int
    vocabulary: int
    kv_width: int
    """Width of keys, and of values."""
    is_tied: bool

    @property
    def body(self) -> int:
        """Weights of all blocks."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.kv_width
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def parameters(self) -> int:
        """All weights; norms are left out."""
        return self.body + (1 if self.is_tied else 2) * self.vocabulary * self.hidden

    @classmethod
    def of_folder(cls, folder: Path) -> ModelShape:
        """Raises ConfigurationError if the folder holds no configuration of a Llama."""
        try:
            values: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
            heads = int(values["num_attention_heads"])
            hidden = int(values["hidden_size"])
            head = int(values.get("head_dim") or hidden // heads)
            return cls(
                layers=int(values["num_hidden_layers"]),
                hidden=hidden,
                intermediate=int(values["intermediate_size"]),
                vocabulary=int(values["vocab_size"]),
                kv_width=head * int(values.get("num_key_value_heads") or heads),
                is_tied=bool(values.get("tie_word_embeddings", False)),
            )
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigurationError(f"{folder}: no model to train there ({error})") from error


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known from earlier jobs; None where there were none."""

    tokens_per_rollout: float | None = None
    update_tokens_per_s: float | None = None
    """Trained tokens per second of an update."""
    rollout_s: float | None = None
    """Wall time of a step's rollouts, divided by their number."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Before the start; ranges from low to high."""

    memory_mb: float
    seconds_low: float
    seconds_high: float
    rollouts: int
    """Of training; held-out evaluations come on top."""
    is_measured: bool
    """Whether earlier jobs are behind it."""
    sentence: str


def estimate(manifest: Manifest, shape: ModelShape, pace: Pace) -> Estimate:
    """What the job takes on the device of its manifest."""
    is_cuda = manifest.execution.device.startswith("cuda")
    rollouts = manifest.budgets.steps * manifest.batch.groups_per_step * manifest.batch.group_size
    tokens = pace.tokens_per_rollout or 400.0
    flops = CUDA_FLOPS if is_cuda else CPU_FLOPS
    # Per weight: two operations forward, two back to the inputs, two to the weight itself.
    per_weight = 4.0 if manifest.lora is not None else 6.0
    rate = pace.update_tokens_per_s or flops / (per_weight * shape.parameters)
    rollout_s = pace.rollout_s
    if rollout_s is None:
        # Decoding takes two operations per weight and runs at about half the rate of training.
        rollout_s = tokens * 0.25 / max(1.0, flops / (4.0 * shape.parameters))
    updates = manifest.batch.updates_per_step
    seconds = rollouts * (rollout_s + updates * tokens / rate)
    is_measured = pace.update_tokens_per_s is not None and pace.rollout_s is not None
    factor = MEASURED if is_measured else UNMEASURED
    memory = memory_bytes(manifest, shape)
    low, high = seconds / factor, seconds * factor
    source = "from earlier jobs" if is_measured else "from the size of the model alone"
    sentence = (
        f"{rollouts} rollouts in {manifest.budgets.steps} steps, {_words(low)} to {_words(high)} "
        f"and {memory / 1e6:,.0f} MB on {manifest.execution.device}, {source}."
    )
    return Estimate(memory / 1e6, low, high, rollouts, is_measured, sentence)


def memory_bytes(manifest: Manifest, shape: ModelShape) -> float:
    """Peak of a process of the trainer: weights, what is trained with its gradient, moments and
    masters, activations, one chunk of logits."""
    width = 2.0 if manifest.model.dtype == "bfloat16" else 4.0
    weights = width * shape.parameters
    if manifest.lora is None:
        # Gradient, two moments, and the master of what is not in fp32 itself.
        trained = (width + 8.0 + (4.0 if width < 4.0 else 0.0)) * shape.parameters
    else:
        trained = 16.0 * _adapter_parameters(manifest.lora, shape)
    if manifest.execution.shard == "fsdp2":
        in_shards = shape.body / shape.parameters * (1.0 - 1.0 / manifest.execution.processes)
        weights, trained = weights * (1.0 - in_shards), trained * (1.0 - in_shards)
    tokens = manifest.batch.budget_tokens
    per_token = shape.layers * shape.hidden * BYTES_PER_UNIT * width / 4.0
    if manifest.execution.is_checkpointed:
        # One block at a time, and what each of them began with.
        per_token = per_token / shape.layers + shape.layers * shape.hidden * width
    is_cuda = manifest.execution.device.startswith("cuda")
    runtime = CUDA_RUNTIME_BYTES if is_cuda else RUNTIME_BYTES
    chunk = manifest.batch.head_chunk * shape.vocabulary * 12.0
    return weights + trained + tokens * per_token + chunk + runtime


def _adapter_parameters(lora: LoraPart, shape: ModelShape) -> int:
    widths = {
        "q_proj": (shape.hidden, shape.hidden),
        "k_proj": (shape.hidden, shape.kv_width),
        "v_proj": (shape.hidden, shape.kv_width),
        "o_proj": (shape.hidden, shape.hidden),
        "gate_proj": (shape.hidden, shape.intermediate),
        "up_proj": (shape.hidden, shape.intermediate),
        "down_proj": (shape.intermediate, shape.hidden),
    }
    one = sum(sum(widths[name]) for name in lora.targets if name in widths)
    return lora.rank * shape.layers * one


def _words(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
