"""Attention over a tree by one fused kernel: for CUDA, where a loop over segments wastes time.

The layout is flat and ordered: root, prefix, then each suffix. A query sees a key that is not later
and lies in the root, in the prefix, or in its own suffix; that is all a mask has to say. `flex`
compiles it into a block mask, so blocks that nobody sees are skipped; `dense` writes the mask down
and is for devices and versions without flex.

Values and gradients are those of `training.tree`, which the tests compare on the CPU; on a CUDA
device none of this has been run yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

    from training.tree import TreeLayout


def fused_tree_attention(
    q_N_H_D: Tensor,
    k_N_K_D: Tensor,
    v_N_K_D: Tensor,
    past: tuple[Tensor, Tensor] | None,
    layout: TreeLayout,
    *,
    form: str = "flex",
) -> Tensor:
    """Attention output `[N, H, D]`, scaled by 1/sqrt(D); `past`: keys and values of the root."""
    if past is not None:
        k_N_K_D = torch.cat([past[0], k_N_K_D])
        v_N_K_D = torch.cat([past[1], v_N_K_D])
    q, k, v = (x.transpose(0, 1)[None] for x in (q_N_H_D, k_N_K_D, v_N_K_D))
    if form == "flex":
        out = _flex(q.device)(q, k, v, block_mask=_block_mask(layout, q.device), enable_gqa=True)
    else:
        mask = _dense_mask(layout, q.device)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    result: Tensor = out[0].transpose(0, 1)
    return result


@cache
def _flex(device: torch.device) -> Callable[..., Any]:
    """Compiled where it becomes a kernel; elsewhere as it is, which is slow and right."""
    # Imported late: it brings torch's compiler, seconds that a CPU would pay for nothing.
    from torch.nn.attention.flex_attention import flex_attention

    if device.type != "cuda":
        return flex_attention
    return torch.compile(flex_attention, dynamic=True)


def _owners(layout: TreeLayout, device: torch.device) -> Tensor:
    """Per key, root first: 0 where everybody may look, else the number of its suffix."""
    parts = [torch.zeros(layout.root + layout.prefix, dtype=torch.int32)]
    number = 0
    for segment in layout.segments:
        if segment.start >= layout.prefix:
            number += 1
            parts.append(torch.full((segment.stop - segment.start,), number, dtype=torch.int32))
    return torch.cat(parts).to(device)


def _block_mask(layout: TreeLayout, device: torch.device) -> BlockMask:
    """Built once per layout: every layer of the pass uses it."""
    from torch.nn.attention.flex_attention import create_block_mask

    found: BlockMask | None = layout.masks.get("flex")
    if found is None:
        owners, root = _owners(layout, device), layout.root

        def sees(_b: Tensor, _h: Tensor, query: Tensor, key: Tensor) -> Tensor:
            own = owners[root + query]
            return (key <= root + query) & ((owners[key] == 0) | (owners[key] == own))

        keys = len(owners)
        found = create_block_mask(sees, None, None, keys - root, keys, device=device)
        layout.masks["flex"] = found
    return found


def _dense_mask(layout: TreeLayout, device: torch.device) -> Tensor:
    found = layout.masks.get("dense")
    if found is None:
        owners = _owners(layout, device)
        queries = torch.arange(layout.root, len(owners), device=device)[:, None]
        keys = torch.arange(len(owners), device=device)
        found = (keys <= queries) & ((owners == 0) | (owners == owners[queries]))
        layout.masks["dense"] = found
    result: Tensor = found
    return result
