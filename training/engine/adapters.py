"""LoRA adapters for the sampler, read from folders in PEFT format.

The sampler never merges an adapter into the base: several are served at once, rows of one adapter
share its two small products, and the numbers are those of the trainer. For each fused matrix the
A matrices are stacked and the B matrices put on a block diagonal, so that any number of
projections costs two products. The scale (alpha/r, or alpha/sqrt(r) with rank-stabilised LoRA) is
folded into B once.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from training.engine.weights import FUSED, BaseWeights

_PREFIX = "base_model.model."
_serials = itertools.count()


class AdapterError(ValueError):
    """The folder is not an adapter that this model can serve; the message names the reason."""


@dataclass(frozen=True)
class LowRank:
    """y += x Aᵀ Bᵀ for one fused matrix."""

    a: Tensor
    "`[rank of all parts, in]`"
    b: Tensor
    "`[out, rank of all parts]`, scaled"


@dataclass(frozen=True)
class Adapter:
    """One loaded adapter."""

    name: str
    path: str
    layers: list[dict[str, LowRank]]
    "per layer: fused name to its update; a missing name has none"
    serial: int = field(default_factory=_serials.__next__)
    "never used twice in a process, unlike a name: what caches are keyed by"


def load_adapter(*, name: str, path: Path, base: BaseWeights) -> Adapter:
    """Raises AdapterError: unreadable folder, unsupported option, or tensors that do not fit the
    model."""
    try:
        settings = json.loads((path / "adapter_config.json").read_text(encoding="utf-8"))
        tensors = load_file(path / "adapter_model.safetensors")
    except (OSError, ValueError) as error:
        raise AdapterError(f"cannot read the adapter {name!r} in {path}: {error}") from error
    except Exception as error:  # safetensors raises its own class for a damaged file
        if type(error).__name__ != "SafetensorError":
            raise
        raise AdapterError(f"cannot read the adapter {name!r} in {path}: {error}") from error
    _refuse_unsupported(name, settings)
    pairs = _pairs(name, tensors)
    layers: list[dict[str, LowRank]] = []
    for index, layer in enumerate(base.layers):
        updates = {}
        for fused, parts in FUSED.items():
            sizes = _part_sizes(base, fused)
            found = {
                part: pairs.pop(f"model.layers.{index}.{part}")
                for part in parts
                if f"model.layers.{index}.{part}" in pairs
            }
            if found:
                scales = {part: _scale(settings, part, found[part][0]) for part in found}
                linear = layer.linears[fused]
                updates[fused] = _fuse(name, parts, sizes, found, scales, linear.in_features)
        layers.append(updates)
    if pairs:
        raise AdapterError(f"adapter {name!r} changes {sorted(pairs)[0]}, which is not served")
    return Adapter(name=name, path=str(path), layers=layers)


def _refuse_unsupported(name: str, settings: Mapping[str, Any]) -> None:
    if settings.get("peft_type", "LORA") != "LORA":
        raise AdapterError(f"adapter {name!r}: peft_type {settings['peft_type']!r} is not LORA")
    if settings.get("bias", "none") != "none":
        raise AdapterError(f"adapter {name!r}: bias {settings['bias']!r} is not served")
    for option in (
        "use_dora",
        "modules_to_save",
        "fan_in_fan_out",
        "lora_bias",
        "alora_invocation_tokens",
    ):
        if settings.get(option):
            raise AdapterError(f"adapter {name!r}: {option} is not served")


def _pairs(name: str, tensors: Mapping[str, Tensor]) -> dict[str, tuple[Tensor, Tensor]]:
    """Module name to (A, B)."""
    found: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        module, _, part = key.removeprefix(_PREFIX).rpartition(".lora_")
        if not module or part not in ("A.weight", "B.weight"):
            raise AdapterError(f"adapter {name!r}: unexpected tensor {key}")
        if not bool(torch.isfinite(tensor).all()):
            raise AdapterError(f"adapter {name!r}: {key} holds a value that is not finite")
        found.setdefault(module, {})[part[0]] = tensor.float()
    for module, parts in found.items():
        if len(parts) != 2:
            raise AdapterError(f"adapter {name!r}: {module} has only one of its two matrices")
    return {module: (parts["A"], parts["B"]) for module, parts in found.items()}


def _scale(settings: Mapping[str, Any], part: str, a: Tensor) -> float:
    rank = a.shape[0]
    alpha = settings.get("lora_alpha", rank)
    for pattern, value in (settings.get("alpha_pattern") or {}).items():
        if part.endswith(pattern):
            alpha = value
    return float(alpha) / (math.sqrt(rank) if settings.get("use_rslora") else rank)


def _part_sizes(base: BaseWeights, fused: str) -> list[int]:
    """Output rows of each projection in a fused matrix."""
    config = base.config
    query = config.num_attention_heads * config.head_dim
    key = config.num_key_value_heads * config.head_dim
    return {
        "qkv": [query, key, key],
        "o": [config.hidden_size],
        "gate_up": [config.intermediate_size] * 2,
        "down": [config.hidden_size],
    }[fused]


def _fuse(
    name: str,
    parts: tuple[str, ...],
    sizes: list[int],
    found: Mapping[str, tuple[Tensor, Tensor]],
    scales: Mapping[str, float],
    in_features: int,
) -> LowRank:
    stacked = []
    blocks = []
    for part, size in zip(parts, sizes, strict=True):
        if part not in found:
            blocks.append(torch.zeros(size, 0))
            continue
        a, b = found[part]
        if a.shape[1] != in_features or b.shape[0] != size or a.shape[0] != b.shape[1]:
            raise AdapterError(
                f"adapter {name!r}: {part} has shapes {tuple(a.shape)} and {tuple(b.shape)}, "
                f"the model needs [r, {in_features}] and [{size}, r]"
            )
        stacked.append(a)
        blocks.append(b * scales[part])
    return LowRank(a=torch.cat(stacked).contiguous(), b=_block_diagonal(blocks))


def _block_diagonal(blocks: list[Tensor]) -> Tensor:
    rows = sum(block.shape[0] for block in blocks)
    matrix = torch.zeros(rows, sum(block.shape[1] for block in blocks))
    row = column = 0
    for block in blocks:
        matrix[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return matrix
