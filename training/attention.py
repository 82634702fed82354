"""Attention over a prefix batch, with gradients: P shared tokens and R suffixes, all flat.

A suffix token sees the whole prefix and its own past. The two parts are computed apart and joined
by their log-sum-exp, so the prefix's keys are never copied per suffix and nothing of size queries
× keys is kept for the backward pass. Each part's backward is the usual flash backward with the
*joint* output and log-sum-exp: with p = exp(q·k − lse) and delta = sum(dO ∘ O) the formulas do
not ask which keys a part holds (FlashAttention, arXiv 2205.14135, appendix B.2; the same identity
carries ring attention, arXiv 2310.01889).

Axes as in `training/llama.py`. Suffixes are padded to `[R, S]` only inside this module; a padded
key lies after every real query of its row, so the causal mask hides it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class PrefixLayout:
    """Where the tokens of a prefix batch lie."""

    prefix: int
    "P"
    suffixes: int
    "R"
    longest: int
    "S"
    positions_N: Tensor
    "position of each flat token"
    slots_M: Tensor
    "for each of the M = N - P suffix tokens its place in the padded R * S grid"

    @classmethod
    def build(
        cls, *, prefix: int, suffixes: Sequence[int], device: torch.device | str = "cpu"
    ) -> PrefixLayout:
        longest = max(suffixes, default=0)
        steps = [torch.arange(length, device=device) for length in suffixes]
        positions = torch.cat([torch.arange(prefix, device=device), *(prefix + s for s in steps)])
        slots = [row * longest + step for row, step in enumerate(steps)]
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        return cls(prefix, len(suffixes), longest, positions, torch.cat([empty, *slots]))


def prefix_attention(
    q_N_H_D: Tensor, k_N_K_D: Tensor, v_N_K_D: Tensor, layout: PrefixLayout
) -> Tensor:
    """Attention output `[N, H, D]`, scaled by 1/sqrt(D)."""
    split = layout.prefix
    outputs = []
    if split:
        outputs.append(_causal(q_N_H_D[:split], k_N_K_D[:split], v_N_K_D[:split]))
    if layout.longest:
        parts = (
            q_N_H_D[split:],
            k_N_K_D[:split],
            v_N_K_D[:split],
            k_N_K_D[split:],
            v_N_K_D[split:],
        )
        if q_N_H_D.device.type == "cpu":
            outputs.append(_SuffixAttention.apply(*parts, layout))  # type: ignore[no-untyped-call]  # torch's own
        else:
            outputs.append(expanded_suffixes(*parts, layout))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _causal(q_P_H_D: Tensor, k_P_K_D: Tensor, v_P_K_D: Tensor) -> Tensor:
    groups = q_P_H_D.shape[1] // k_P_K_D.shape[1]
    out = F.scaled_dot_product_attention(
        q_P_H_D.transpose(0, 1)[None],
        _per_query_head(k_P_K_D, groups).transpose(0, 1)[None],
        _per_query_head(v_P_K_D, groups).transpose(0, 1)[None],
        is_causal=True,
    )
    return out[0].transpose(0, 1)


class _SuffixAttention(torch.autograd.Function):
    """Suffix queries against the prefix and their own keys, on torch's CPU flash kernels.

    Keeps only its inputs, its output and one log-sum-exp per query and head.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q_M_H_D: Tensor,
        prefix_k_P_K_D: Tensor,
        prefix_v_P_K_D: Tensor,
        k_M_K_D: Tensor,
        v_M_K_D: Tensor,
        layout: PrefixLayout,
    ) -> Tensor:
        groups = q_M_H_D.shape[1] // k_M_K_D.shape[1]
        out_r, lse_r = flash(
            to_grid(q_M_H_D, layout),
            to_grid(_per_query_head(k_M_K_D, groups), layout),
            to_grid(_per_query_head(v_M_K_D, groups), layout),
            is_causal=True,
        )
        out_M_H_D = from_grid(out_r, layout)
        lse_M_H = from_grid(lse_r[..., None], layout)[..., 0]
        if layout.prefix:
            shared, lse_p = flash(
                _fold(q_M_H_D, groups),
                prefix_k_P_K_D.transpose(0, 1)[None],
                prefix_v_P_K_D.transpose(0, 1)[None],
                is_causal=False,
            )
            shared_M_H_D = _unfold(shared, groups)
            lse_shared_M_H = _unfold(lse_p[..., None], groups)[..., 0]
            joint_M_H = torch.logaddexp(lse_M_H, lse_shared_M_H)
            out_M_H_D = out_M_H_D * (lse_M_H - joint_M_H).exp()[..., None]
            out_M_H_D += shared_M_H_D * (lse_shared_M_H - joint_M_H).exp()[..., None]
            lse_M_H = joint_M_H
        ctx.layout = layout
        ctx.save_for_backward(
            q_M_H_D, prefix_k_P_K_D, prefix_v_P_K_D, k_M_K_D, v_M_K_D, out_M_H_D, lse_M_H
        )
        return out_M_H_D

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        q, prefix_k, prefix_v, k, v, out, lse = ctx.saved_tensors
        gradient, layout = gradients[0], ctx.layout
        groups = q.shape[1] // k.shape[1]
        dq_r, dk_r, dv_r = _flash_backward(
            to_grid(gradient, layout),
            to_grid(q, layout),
            to_grid(_per_query_head(k, groups), layout),
            to_grid(_per_query_head(v, groups), layout),
            to_grid(out, layout),
            to_grid(lse[..., None], layout)[..., 0],
            is_causal=True,
        )
        dq = from_grid(dq_r, layout)
        dk = _per_key_head(from_grid(dk_r, layout), groups)
        dv = _per_key_head(from_grid(dv_r, layout), groups)
        if not layout.prefix:
            return dq, torch.zeros_like(prefix_k), torch.zeros_like(prefix_v), dk, dv, None
        dq_p, dk_p, dv_p = _flash_backward(
            _fold(gradient, groups),
            _fold(q, groups),
            prefix_k.transpose(0, 1)[None],
            prefix_v.transpose(0, 1)[None],
            _fold(out, groups),
            _fold(lse[..., None], groups)[..., 0],
            is_causal=False,
        )
        dq = dq + _unfold(dq_p, groups)
        return dq, dk_p[0].transpose(0, 1), dv_p[0].transpose(0, 1), dk, dv, None


def flash(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool) -> tuple[Tensor, Tensor]:
    """Output `[B, A, T, D]` and log-sum-exp `[B, A, T]`, by torch's CPU kernel; no gradient."""
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal)
    return out, lse


def _flash_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    *,
    is_causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, q, k, v, out, lse, 0.0, is_causal
    )
    return dq, dk, dv


def to_grid(x_M_A_X: Tensor, layout: PrefixLayout) -> Tensor:
    """Flat suffix tokens to the padded `[R, A, S, X]`; padding is 0."""
    grid = x_M_A_X.new_zeros(layout.suffixes * layout.longest, *x_M_A_X.shape[1:])
    grid = grid.index_copy(0, layout.slots_M, x_M_A_X)
    return grid.view(layout.suffixes, layout.longest, *x_M_A_X.shape[1:]).transpose(1, 2)


def from_grid(x_R_A_S_X: Tensor, layout: PrefixLayout) -> Tensor:
    """Inverse of `to_grid`."""
    flat = x_R_A_S_X.transpose(1, 2).flatten(0, 1)
    return flat[layout.slots_M]


def _fold(x_M_H_X: Tensor, groups: int) -> Tensor:
    """`[1, K, M*G, X]`: query heads of a key head become queries; keys are not copied."""
    tokens, heads, size = x_M_H_X.shape
    x = x_M_H_X.view(tokens, heads // groups, groups, size).transpose(0, 1)
    return x.reshape(1, heads // groups, tokens * groups, size)


def _unfold(x_1_K_MG_X: Tensor, groups: int) -> Tensor:
    """Inverse of `_fold`: `[M, H, X]`."""
    _, kv_heads, queries, size = x_1_K_MG_X.shape
    x = x_1_K_MG_X.reshape(kv_heads, queries // groups, groups, size).transpose(0, 1)
    return x.reshape(queries // groups, kv_heads * groups, size)


def _per_query_head(x_T_K_D: Tensor, groups: int) -> Tensor:
    return x_T_K_D.repeat_interleave(groups, 1)


def _per_key_head(x_T_H_D: Tensor, groups: int) -> Tensor:
    tokens, heads, size = x_T_H_D.shape
    return x_T_H_D.reshape(tokens, heads // groups, groups, size).sum(2)


def expanded_suffixes(
    q_M_H_D: Tensor,
    prefix_k_P_K_D: Tensor,
    prefix_v_P_K_D: Tensor,
    k_M_K_D: Tensor,
    v_M_K_D: Tensor,
    layout: PrefixLayout,
) -> Tensor:
    """The same by one masked attention on copied prefix keys: any device, more memory."""
    heads, size = q_M_H_D.shape[1:]
    groups = heads // k_M_K_D.shape[1]
    split, longest, rows = layout.prefix, layout.longest, layout.suffixes

    def joined(prefix: Tensor, own: Tensor) -> Tensor:
        shared = _per_query_head(prefix, groups).transpose(0, 1)
        own = to_grid(_per_query_head(own, groups), layout)
        return torch.cat([shared.expand(rows, heads, split, size), own], dim=2)

    mask = torch.ones(longest, split + longest, dtype=torch.bool, device=q_M_H_D.device)
    out = F.scaled_dot_product_attention(
        to_grid(q_M_H_D, layout),
        joined(prefix_k_P_K_D, k_M_K_D),
        joined(prefix_v_P_K_D, v_M_K_D),
        attn_mask=mask.tril(split),
    )
    return from_grid(out, layout)
