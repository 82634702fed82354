"""The base model as the sampler holds it: fused and packed once, never changed.

Query, key and value projections are one matrix, gate and up are one matrix. On CPUs with oneDNN
each matrix is kept in oneDNN's blocked layout: at 8 rows a step takes 42 ms instead of 73, at 48
rows 90 instead of 132 (SmolLM2, fp32, one core). bf16 weights gained nothing on a core without
AMX and put the sampler's log-probabilities 0.06 away from the trainer's, so there is no such
option.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from training.llama import LlamaConfig, rotary_tables

PACK_ROWS = 32
"row count that the blocked layout is chosen for; others work with the same layout"

FUSED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "o": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
"the fused matrices of a layer and the projections they are made of, in order of output rows"


class PackedLinear:
    """y = x Wᵀ for x `[N, in]`."""

    def __init__(self, weight: Tensor) -> None:
        self.out_features, self.in_features = weight.shape
        self.is_blocked = weight.device.type == "cpu" and bool(torch._C._has_mkldnn)
        if self.is_blocked:
            weight = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), PACK_ROWS)
        self._weight = weight

    def __call__(self, x: Tensor) -> Tensor:
        if self.is_blocked:
            y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, None, "none", [], "")
            return y
        return F.linear(x, self._weight)


@dataclass(frozen=True)
class LayerWeights:
    """One block."""

    input_norm: Tensor
    post_norm: Tensor
    linears: dict[str, PackedLinear]
    "by the names of FUSED"


@dataclass(frozen=True)
class BaseWeights:
    """Everything that is shared by all adapters."""

    config: LlamaConfig
    embedding: Tensor
    layers: list[LayerWeights]
    final_norm: Tensor
    head: PackedLinear
    cos: Tensor
    "`[positions, 1, D]`, fp32"
    sin: Tensor


def load_base(folder: Path) -> BaseWeights:
    """Reads and packs `model.safetensors` layer by layer, so that nothing is held twice."""
    config = LlamaConfig.from_folder(folder)
    layers = []
    for index in range(config.num_hidden_layers):
        prefix = f"model.layers.{index}."
        with _tensors(folder) as read:
            linears = {
                fused: PackedLinear(torch.cat([read(f"{prefix}{part}.weight") for part in parts]))
                for fused, parts in FUSED.items()
            }
            layers.append(
                LayerWeights(
                    input_norm=read(f"{prefix}input_layernorm.weight").clone(),
                    post_norm=read(f"{prefix}post_attention_layernorm.weight").clone(),
                    linears=linears,
                )
            )
    with _tensors(folder) as read:
        head_name = "model.embed_tokens" if config.tie_word_embeddings else "lm_head"
        head = PackedLinear(read(f"{head_name}.weight"))
        final_norm = read("model.norm.weight").clone()
    cos, sin = _rotary(config)
    return BaseWeights(
        config=config,
        embedding=_mapped_embedding(folder),
        layers=layers,
        final_norm=final_norm,
        head=head,
        cos=cos,
        sin=sin,
    )


@contextmanager
def _tensors(folder: Path) -> Iterator[Callable[[str], Tensor]]:
    """Reads tensors by name, in fp32; what is kept must be copied.

    The file is mapped only while open, so the mapping of one layer is gone before the next, or the
    whole file would count as memory in use.
    """
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        yield lambda name: file.get_tensor(name).float()


def _mapped_embedding(folder: Path) -> Tensor:
    """The embedding as a mapping of the file: a row is read when a token first needs it."""
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        embedding: Tensor = file.get_tensor("model.embed_tokens.weight").float()
    return embedding


def _rotary(config: LlamaConfig) -> tuple[Tensor, Tensor]:
    positions = torch.arange(config.max_position_embeddings)
    return rotary_tables(config, positions, dtype=torch.float32)
