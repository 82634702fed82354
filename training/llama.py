"""The decoder of the Llama family: the one definition of the network that training uses.

Owns: configuration, modules and the two ways to run them. Modules are named as in Hugging Face
and every projection is a plain `nn.Linear`, so PEFT names, LoRA by name and `model.safetensors`
fit without translation. transformers is not imported (its import alone takes seconds), and
everything that it would decide silently (mask, positions, dtype) is visible here.

Tokens are flat: hidden states are `[N, hidden]` for N packed tokens, without padding, so each
linear layer is one matrix product over all tokens. Attention works on a *prefix batch*: P shared
tokens, computed once, and R suffixes of lengths S_i that see the prefix and their own past. P = 0
with one suffix is the plain causal case. The gradient through the shared prefix is the sum over
its users, which is what separate rows would give.

Axes: `P` prefix tokens, `R` suffixes, `S` longest suffix, `N` = P + sum of S_i, `H` heads, `K`
key-value heads, `D` head size.

Not here: sampling with a cache (`training/engine`), the loss and the chunked head
(`training/head.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint as recompute

from training.attention import PrefixLayout, prefix_attention
from training.errors import ConfigurationError


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of the network, as in a Hugging Face `config.json`."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    eos_token_id: int

    @classmethod
    def from_hf(cls, values: Mapping[str, Any]) -> LlamaConfig:
        """Raises ValueError, naming the field, for what this decoder does not compute."""
        rope = values.get("rope_parameters") or {}
        scaling = values.get("rope_scaling") or rope
        kind = scaling.get("rope_type", scaling.get("type", "default"))
        refused = {
            "model_type": values.get("model_type") != "llama",
            "hidden_act": values.get("hidden_act", "silu") != "silu",
            "attention_bias": bool(values.get("attention_bias")),
            "mlp_bias": bool(values.get("mlp_bias")),
            "rope_scaling": kind != "default",
        }
        for field, is_refused in refused.items():
            if is_refused:
                raise ValueError(f"config.json: {field} = {values.get(field)!r} is not supported")
        heads = values["num_attention_heads"]
        eos = values.get("eos_token_id", 0)
        return cls(
            vocab_size=values["vocab_size"],
            hidden_size=values["hidden_size"],
            intermediate_size=values["intermediate_size"],
            num_hidden_layers=values["num_hidden_layers"],
            num_attention_heads=heads,
            num_key_value_heads=values.get("num_key_value_heads") or heads,
            head_dim=values.get("head_dim") or values["hidden_size"] // heads,
            rms_norm_eps=values["rms_norm_eps"],
            rope_theta=float(values.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            max_position_embeddings=values["max_position_embeddings"],
            tie_word_embeddings=bool(values.get("tie_word_embeddings")),
            eos_token_id=eos[0] if isinstance(eos, list) else eos,
        )

    @classmethod
    def from_folder(cls, folder: Path) -> LlamaConfig:
        return cls.from_hf(json.loads((folder / "config.json").read_text(encoding="utf-8")))

    def to_hf(self) -> dict[str, Any]:
        """The same as a `config.json` that transformers reads too."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_act": "silu",
            "dtype": "float32",
            **self.__dict__,
        }


def sizes_of(folder: Path) -> tuple[int, int]:
    """Vocabulary and context in tokens of a model folder, whatever its architecture.

    Raises ConfigurationError that names the file.
    """
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        return int(values["vocab_size"]), int(values["max_position_embeddings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{path}: {type(error).__name__}: {error}") from error


class RMSNorm(nn.Module):
    """Root-mean-square norm, in the dtype of its input."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention over a prefix batch."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        hidden = config.hidden_size
        self.q_proj = nn.Linear(hidden, self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, hidden, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], layout: PrefixLayout) -> Tensor:
        count = x.shape[0]
        q_N_H_D = rotate(self.q_proj(x).view(count, self.heads, self.head_dim), rotary)
        k_N_K_D = rotate(self.k_proj(x).view(count, self.kv_heads, self.head_dim), rotary)
        v_N_K_D = self.v_proj(x).view(count, self.kv_heads, self.head_dim)
        out = prefix_attention(q_N_H_D, k_N_K_D, v_N_K_D, layout)
        return self.o_proj(out.reshape(count, -1))  # type: ignore[no-any-return]


class MLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))  # type: ignore[no-any-return]


class Layer(nn.Module):
    """One pre-norm block."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], layout: PrefixLayout) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary, layout)
        return x + self.mlp(self.post_attention_layernorm(x))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Embedding, blocks and the final norm: `model.*` in Hugging Face names."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)


class Llama(nn.Module):
    """The whole network. Its `forward` is `forward_packed`."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        if config.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(
        self, prefix_ids: Tensor, suffixes: Sequence[Tensor], *, checkpoint: bool = False
    ) -> Tensor:
        return forward_packed(self, prefix_ids, suffixes, checkpoint=checkpoint)


def load_llama(folder: Path, *, dtype: torch.dtype = torch.float32) -> Llama:
    """The network of a prepared folder, in evaluation mode, all parameters frozen.

    Raises ValueError if names or shapes do not fit `config.json`.
    """
    from safetensors.torch import load_file

    config = LlamaConfig.from_folder(folder)
    with torch.device("meta"):
        model = Llama(config)
    tensors = {k: v.to(dtype) for k, v in load_file(folder / "model.safetensors").items()}
    if config.tie_word_embeddings:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    try:
        model.load_state_dict(tensors, strict=True, assign=True)
    except RuntimeError as error:
        raise ValueError(f"{folder}/model.safetensors does not fit config.json: {error}") from error
    if config.tie_word_embeddings:
        # Assigning makes two parameters of one tensor; optimisers and memory must see one.
        model.lm_head.weight = model.model.embed_tokens.weight
    return model.eval().requires_grad_(False)


def forward_packed(
    model: Llama,
    prefix_ids: Tensor,
    suffixes: Sequence[Tensor],
    *,
    checkpoint: bool = False,
) -> Tensor:
    """Hidden states after the final norm, `[P + sum S_i, hidden]`: the prefix first, then each
    suffix in order.

    `prefix_ids`: int64 `[P]`, P may be 0. `suffixes`: int64 `[S_i]` each; S_i may be 0; the list
    may be empty. Token t of a suffix has position P + t. Logits are `model.lm_head(hidden)`, best
    taken only where needed. The hidden state of the last prefix token predicts the first token of
    *every* suffix. `checkpoint` recomputes each block in the backward pass instead of keeping its
    activations.
    """
    device = model.model.embed_tokens.weight.device
    layout = PrefixLayout.build(
        prefix=len(prefix_ids), suffixes=[len(suffix) for suffix in suffixes], device=device
    )
    ids_N = torch.cat([prefix_ids, *suffixes]).to(device)
    x = model.model.embed_tokens(ids_N)
    rotary = rotary_tables(model.config, layout.positions_N, dtype=x.dtype)
    for layer in model.model.layers:
        if checkpoint and torch.is_grad_enabled():
            x = recompute(layer, x, rotary, layout, use_reentrant=False)
        else:
            x = layer(x, rotary, layout)
    return model.model.norm(x)  # type: ignore[no-any-return]


def forward_causal(model: Llama, ids: Tensor, *, checkpoint: bool = False) -> Tensor:
    """Hidden states `[T, hidden]` of one plain causal sequence."""
    return forward_packed(model, ids, [], checkpoint=checkpoint)


def rotary_tables(
    config: LlamaConfig, positions_N: Tensor, *, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """cos and sin `[N, 1, D]`; angles in fp32 whatever the dtype of the network."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=positions_N.device)
    inverse = 1.0 / config.rope_theta ** (exponents / config.head_dim)
    angles = positions_N.float()[:, None] * inverse
    angles = torch.cat([angles, angles], dim=-1)[:, None]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x_N_H_D: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary positions in Hugging Face's layout: the two halves of a head are the pair."""
    cos, sin = rotary
    half = x_N_H_D.shape[-1] // 2
    turned = torch.cat([-x_N_H_D[..., half:], x_N_H_D[..., :half]], dim=-1)
    return x_N_H_D * cos + turned * sin
