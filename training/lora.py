"""Low-rank adapters on every linear layer of the blocks, in PEFT's file format.

y = x W^T + (alpha / r) (x A^T) B^T with W frozen, B = 0 at the start, A drawn from a seed.
Embedding and head stay out: they are tied in the models we train, and an adapter on a tied head
would train the embedding too. Adapters are shipped as they are and never merged into half-precision
weights, where a merge loses up to nearly all of a small update.

The folder that `save_adapter` writes is read by PEFT, vLLM and our own server alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from training.attention import PrefixLayout, prefix_attention
from training.errors import CheckpointError, ConfigurationError
from training.llama import MLP, Attention, rotate
from training.manifest import ALL_LINEAR
from training.shards import copy_into, whole
from training.tree import TreeLayout, tree_attention

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
_PEFT_PREFIX = "base_model.model."


@dataclass(frozen=True, slots=True)
class LoraSpec:
    """What to adapt, and how."""

    rank: int = 16
    alpha: float = 32.0
    seed: int = 0
    targets: tuple[str, ...] = ALL_LINEAR


class _LowRank(torch.autograd.Function):
    """y = x W^T + scale (x A^T) B^T; gradients for x, A and B, never for the frozen W."""

    @staticmethod
    def forward(
        ctx: Any, x_NI: Tensor, weight_OI: Tensor, a_RI: Tensor, b_OR: Tensor, scale: float
    ) -> Tensor:
        low_NR = x_NI.to(a_RI.dtype) @ a_RI.T
        y_NO = x_NI @ weight_OI.T
        y_NO.addmm_(low_NR.to(y_NO.dtype), b_OR.T.to(y_NO.dtype), alpha=scale)
        ctx.save_for_backward(x_NI, low_NR, weight_OI, a_RI, b_OR)
        ctx.scale = scale
        return y_NO

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, Tensor, Tensor, None]:
        x_NI, low_NR, weight_OI, a_RI, b_OR = ctx.saved_tensors
        return _low_rank_gradients(grads[0], x_NI, low_NR, weight_OI, a_RI, b_OR, ctx.scale)


def _low_rank_gradients(
    grad_NO: Tensor,
    x_NI: Tensor,
    low_NR: Tensor,
    weight_OI: Tensor,
    a_RI: Tensor,
    b_OR: Tensor,
    scale: float,
) -> tuple[Tensor, None, Tensor, Tensor, None]:
    fine_NO = grad_NO.to(b_OR.dtype)
    grad_low_NR = (fine_NO @ b_OR) * scale
    grad_x_NI = grad_NO @ weight_OI
    grad_x_NI.addmm_(grad_low_NR.to(grad_x_NI.dtype), a_RI.to(grad_x_NI.dtype))
    grad_a_RI = grad_low_NR.T @ x_NI.to(a_RI.dtype)
    grad_b_OR = (low_NR.T @ fine_NO).T * scale
    return grad_x_NI, None, grad_a_RI, grad_b_OR, None


class _SwigluDown(torch.autograd.Function):
    """down(silu(gate) * up) with the adapter of `down`; keeps gate and up, recomputes the product.

    Plain autograd keeps four tables of the intermediate size per block, this keeps two.
    """

    @staticmethod
    def forward(
        ctx: Any,
        gate_NI: Tensor,
        up_NI: Tensor,
        weight_OI: Tensor,
        a_RI: Tensor,
        b_OR: Tensor,
        scale: float,
    ) -> Tensor:
        product_NI = F.silu(gate_NI).mul_(up_NI)
        low_NR = product_NI.to(a_RI.dtype) @ a_RI.T
        y_NO = product_NI @ weight_OI.T
        y_NO.addmm_(low_NR.to(y_NO.dtype), b_OR.T.to(y_NO.dtype), alpha=scale)
        ctx.save_for_backward(gate_NI, up_NI, low_NR, weight_OI, a_RI, b_OR)
        ctx.scale = scale
        return y_NO

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, Tensor, Tensor, None]:
        gate_NI, up_NI, low_NR, weight_OI, a_RI, b_OR = ctx.saved_tensors
        share_NI = torch.sigmoid(gate_NI)
        silu_NI = gate_NI * share_NI
        product_NI = silu_NI * up_NI
        grad_NI, _, grad_a_RI, grad_b_OR, _ = _low_rank_gradients(
            grads[0], product_NI, low_NR, weight_OI, a_RI, b_OR, ctx.scale
        )
        grad_up_NI = grad_NI * silu_NI
        # d silu(g) / dg = s + g s (1 - s) = s + silu (1 - s)
        slope_NI = silu_NI.mul_(1.0 - share_NI).add_(share_NI)
        grad_gate_NI = grad_NI.mul_(up_NI).mul_(slope_NI)
        return grad_gate_NI, grad_up_NI, None, grad_a_RI, grad_b_OR, None


class LoraLinear(nn.Module):
    """A frozen linear layer with a low-rank addition."""

    def __init__(self, base: nn.Linear, spec: LoraSpec, generator: torch.Generator) -> None:
        super().__init__()
        bias: Tensor | None = base.bias
        if bias is not None:
            raise ConfigurationError("lora: linear layers with a bias are not supported")
        self.weight = base.weight
        self.scale = spec.alpha / spec.rank
        # PEFT's initialisation: uniform within 1/sqrt(in) for A, nothing for B.
        bound = 1.0 / math.sqrt(base.in_features)
        drawn = torch.empty(spec.rank, base.in_features).uniform_(
            -bound, bound, generator=generator
        )
        # fp32 on a half-precision base: updates of Adam's size would be lost in bf16.
        dtype = torch.float64 if base.weight.dtype == torch.float64 else torch.float32
        self.lora_A = nn.Parameter(drawn.to(base.weight.device, dtype))
        self.lora_B = nn.Parameter(
            torch.zeros(base.out_features, spec.rank, device=base.weight.device, dtype=dtype)
        )

    def forward(self, x_NI: Tensor) -> Tensor:
        """x is flat: tokens by features."""
        result: Tensor = _LowRank.apply(  # type: ignore[no-untyped-call] # torch: apply is untyped
            x_NI, self.weight, self.lora_A, self.lora_B, self.scale
        )
        return result


class LoraSwiglu(nn.Module):
    """A SwiGLU block whose three layers have adapters, leaner than the sum of its parts."""

    def __init__(self, gate: nn.Module, up: nn.Module, down: LoraLinear) -> None:
        super().__init__()
        self.gate_proj = gate
        self.up_proj = up
        self.down_proj = down

    def forward(self, x_NI: Tensor) -> Tensor:
        """x is flat: tokens by features."""
        result: Tensor = _SwigluDown.apply(  # type: ignore[no-untyped-call] # as above
            self.gate_proj(x_NI),
            self.up_proj(x_NI),
            self.down_proj.weight,
            self.down_proj.lora_A,
            self.down_proj.lora_B,
            self.down_proj.scale,
        )
        return result


class TreeAttention(nn.Module):
    """A block's attention for passes over a tree, and for plain prefix batches."""

    def __init__(self, base: Attention, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.heads, self.kv_heads, self.head_dim = base.heads, base.kv_heads, base.head_dim
        self.q_proj: nn.Module = base.q_proj
        self.k_proj: nn.Module = base.k_proj
        self.v_proj: nn.Module = base.v_proj
        self.o_proj: nn.Module = base.o_proj

    def forward(
        self, x_NH: Tensor, rotary: tuple[Tensor, Tensor], layout: TreeLayout | PrefixLayout
    ) -> Tensor:
        """As `training.llama.Attention`."""
        count = x_NH.shape[0]
        q = rotate(self.q_proj(x_NH).view(count, self.heads, self.head_dim), rotary)
        k = rotate(self.k_proj(x_NH).view(count, self.kv_heads, self.head_dim), rotary)
        v = self.v_proj(x_NH).view(count, self.kv_heads, self.head_dim)
        if isinstance(layout, TreeLayout):
            out = tree_attention(q, k, v, layout, self.layer)
        else:
            out = prefix_attention(q, k, v, layout)
        y: Tensor = self.o_proj(out.reshape(count, -1))
        return y


def add_lora(model: nn.Module, spec: LoraSpec) -> list[nn.Parameter]:
    """Replace the target layers of a model in place; returns the new parameters in a fixed order.

    The same spec and architecture give the same values. Raises ConfigurationError if a target
    names no layer.
    """
    generator = torch.Generator().manual_seed(spec.seed)
    replaced: set[str] = set()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if name in spec.targets and isinstance(child, nn.Linear):
                setattr(parent, name, LoraLinear(child, spec, generator))
                replaced.add(name)
    layers = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, MLP) and isinstance(child.down_proj, LoraLinear):
                lean = LoraSwiglu(child.gate_proj, child.up_proj, child.down_proj)
                setattr(parent, name, lean)
            if isinstance(child, Attention):
                setattr(parent, name, TreeAttention(child, layers))
                layers += 1
    missing = set(spec.targets) - replaced
    if missing:
        raise ConfigurationError(f"lora.targets: no linear layer is named {sorted(missing)}")
    return [parameter for _, parameter in lora_parameters(model)]


def lora_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Adapter parameters with their names in PEFT's files, in the order of the model."""
    for name, module in model.named_modules():
        if isinstance(module, LoraLinear):
            yield f"{_PEFT_PREFIX}{name}.lora_A.weight", module.lora_A
            yield f"{_PEFT_PREFIX}{name}.lora_B.weight", module.lora_B


def adapter_files(model: nn.Module, spec: LoraSpec, *, base_model: str) -> dict[str, bytes]:
    """File names and contents of an adapter folder."""
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": spec.rank,
        "lora_alpha": spec.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
        "init_lora_weights": True,
        "modules_to_save": None,
        "target_modules": list(spec.targets),
    }
    tensors = {name: whole(p.detach()).cpu().contiguous() for name, p in lora_parameters(model)}
    return {
        WEIGHTS_FILE: to_bytes(tensors, metadata={"format": "pt"}),
        CONFIG_FILE: (json.dumps(config, indent=2, sort_keys=True) + "\n").encode(),
    }


def load_adapter(model: nn.Module, folder: Path) -> None:
    """Copy the values of an adapter folder into a model that has adapters of the same shape.

    Raises CheckpointError that names the first tensor that is missing, extra or of another shape.
    """
    try:
        tensors = load_bytes((folder / WEIGHTS_FILE).read_bytes())
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder}: {error}") from error
    parameters = dict(lora_parameters(model))
    for name in sorted(parameters.keys() ^ tensors.keys()):
        raise CheckpointError(f"{folder}: adapter and model differ in tensor {name}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            if parameter.shape != tensors[name].shape:
                raise CheckpointError(
                    f"{folder}: {name} is {tuple(tensors[name].shape)}, "
                    f"the model needs {tuple(parameter.shape)}"
                )
            copy_into(parameter, tensors[name])


def spec_of_folder(folder: Path, *, seed: int = 0) -> LoraSpec:
    """The shape of a stored adapter, so that training can go on from it."""
    try:
        config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
        return LoraSpec(
            rank=int(config["r"]),
            alpha=float(config["lora_alpha"]),
            seed=seed,
            targets=tuple(sorted(config["target_modules"], key=ALL_LINEAR.index)),
        )
    except (OSError, KeyError, ValueError) as error:
        raise CheckpointError(f"{folder}/{CONFIG_FILE}: {error}") from error
