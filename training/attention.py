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
        outputs.append(_suffixes(q_N_H_D, k_N_K_D, v_N_K_D, layout))
    return torch.cat(outputs) if len(outputs) > 1 else outputs[0]


def _causal(q_P_H_D: Tensor, k_P_K_D: Tensor, v_P_K_D: Tensor) -> Tensor:
    groups = q_P_H_D.shape[1] // k_P_K_D.shape[1]
    k = k_P_K_D.repeat_interleave(groups, 1).transpose(0, 1)
    v = v_P_K_D.repeat_interleave(groups, 1).transpose(0, 1)
    out = F.scaled_dot_product_attention(
        q_P_H_D.transpose(0, 1)[None], k[None], v[None], is_causal=True
    )
    return out[0].transpose(0, 1)


def _suffixes(q_N_H_D: Tensor, k_N_K_D: Tensor, v_N_K_D: Tensor, layout: PrefixLayout) -> Tensor:
    split, rows, longest = layout.prefix, layout.suffixes, layout.longest
    heads, size = q_N_H_D.shape[1:]
    groups = heads // k_N_K_D.shape[1]

    def padded(x_N_A_D: Tensor) -> Tensor:
        grid = x_N_A_D.new_zeros(rows * longest, *x_N_A_D.shape[1:])
        grid = grid.index_copy(0, layout.slots_M, x_N_A_D[split:])
        return grid.view(rows, longest, *x_N_A_D.shape[1:]).transpose(1, 2)

    q = padded(q_N_H_D)
    k = padded(k_N_K_D.repeat_interleave(groups, 1))
    v = padded(v_N_K_D.repeat_interleave(groups, 1))
    shared = k_N_K_D[:split].repeat_interleave(groups, 1).transpose(0, 1)
    k = torch.cat([shared.expand(rows, heads, split, size), k], dim=2)
    shared = v_N_K_D[:split].repeat_interleave(groups, 1).transpose(0, 1)
    v = torch.cat([shared.expand(rows, heads, split, size), v], dim=2)
    mask = torch.ones(longest, split + longest, dtype=torch.bool, device=q.device).tril(split)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return out.transpose(1, 2).reshape(rows * longest, heads, size)[layout.slots_M]
