"""One step's rows as a tree: a root that all share, then packs, each pass with a gradient.

The instructions and demonstrations of a harness are the same in every rollout of a step and longer
than all that follows. So the root is computed once for the whole step, not once per pack:

1. the root's keys and values, without a graph;
2. each pack against them; its backward pass adds to the gradient of those keys and values;
3. the root again, now with a graph, and a backward pass from the gradients of step 2.

That is exact, and memory holds the activations of one pack or of one piece of the root. Step 3
repeats a forward pass over the root; keeping its graph instead would save about a tenth of the time
and a third more memory.

On a CPU attention is written out, because torch's kernel wants the shared keys copied per row and
keeps the copies; on CUDA it is one fused kernel (`training.fused`). Axes: N flat tokens of a pass,
H heads, K key-value heads, G = H / K, D head size, S keys of the shared part, L tokens of a
segment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint as recompute

from training.fused import fused_tree_attention
from training.llama import Llama, rotary_tables

BLOCK = 128
"""Queries of a prefix that are computed together; above the diagonal at most this much is waste."""

KeyValues = list[tuple[Tensor, Tensor]]
"""Per layer: keys (rotated) and values, each tokens by K by D."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Queries that see the same shared keys, and their own past."""

    start: int
    stop: int
    shared: int
    """How many of the shared keys (root, then prefix) they see."""


@dataclass(frozen=True, slots=True)
class TreeLayout:
    """Where the tokens of a pass lie: a prefix, then suffixes, all below an earlier root."""

    root: int
    prefix: int
    segments: tuple[Segment, ...]
    positions_N: Tensor
    past: KeyValues | None
    """Of the root; None if there is no root."""
    collected: KeyValues = field(default_factory=list)
    """Filled with the keys and values of this pass when `collects`."""
    collects: bool = False
    masks: dict[str, Any] = field(default_factory=dict)
    """Of fused kernels (`training.fused`), built when a pass first needs them."""

    @classmethod
    def build(
        cls,
        *,
        prefix: int,
        suffixes: Sequence[int],
        past: KeyValues | None = None,
        collects: bool = False,
        device: torch.device | str = "cpu",
    ) -> TreeLayout:
        """`prefix` and `suffixes` are lengths in tokens; 0 is allowed."""
        root = 0 if past is None else past[0][0].shape[0]
        segments = [
            Segment(start, min(start + BLOCK, prefix), root + start)
            for start in range(0, prefix, BLOCK)
        ]
        start = prefix
        for length in suffixes:
            if length:
                segments.append(Segment(start, start + length, root + prefix))
            start += length
        steps = [torch.arange(prefix), *(prefix + torch.arange(length) for length in suffixes)]
        positions_N = root + torch.cat(steps)
        return cls(root, prefix, tuple(segments), positions_N.to(device), past, collects=collects)


def forward_tree(
    model: Llama, ids_N: Tensor, layout: TreeLayout, *, checkpoint: bool = False
) -> Tensor:
    """Hidden states after the final norm, in the order of `ids_N`: the prefix, then each suffix.

    The attention modules of the model must be those of `training.lora`.
    """
    x = model.model.embed_tokens(ids_N)
    rotary = rotary_tables(model.config, layout.positions_N, dtype=x.dtype)
    for layer in model.model.layers:
        if checkpoint and torch.is_grad_enabled():
            x = recompute(layer, x, rotary, layout, use_reentrant=False, preserve_rng_state=False)
        else:
            x = layer(x, rotary, layout)
    hidden: Tensor = model.model.norm(x)
    return hidden


class Root:
    """The beginning that all rows of a step share: its keys and values collect gradients.

    Computed in pieces of at most `most_tokens`, so that its backward pass holds the activations of
    one piece only. Call `backward` once, after the backward passes of everything below the root.
    """

    def __init__(self, model: Llama, ids_P: Tensor, *, most_tokens: int) -> None:
        self._model = model
        self._ids_P = ids_P
        count = math.ceil(len(ids_P) / most_tokens)
        size = math.ceil(len(ids_P) / count)
        self._starts = list(range(0, len(ids_P), size))
        self._stops = [*self._starts[1:], len(ids_P)]
        past: KeyValues | None = None
        with torch.no_grad():
            for start, stop in zip(self._starts, self._stops, strict=True):
                new = _keys_and_values(model, ids_P[start:stop], past)
                past = new if past is None else _joined(past, new)
        assert past is not None
        self.past: KeyValues = [(k.requires_grad_(), v.requires_grad_()) for k, v in past]

    def backward(self) -> None:
        """Pass the collected gradients on to the model, the last piece first."""
        for start, stop in zip(reversed(self._starts), reversed(self._stops), strict=True):
            earlier = None
            if start:
                earlier = [
                    (k.detach()[:start].requires_grad_(), v.detach()[:start].requires_grad_())
                    for k, v in self.past
                ]
            outputs = _keys_and_values(self._model, self._ids_P[start:stop], earlier)
            pairs = [
                (output, leaf.grad[start:stop])
                for pair, leaves in zip(outputs, self.past, strict=True)
                for output, leaf in zip(pair, leaves, strict=True)
                if leaf.grad is not None
            ]
            torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
            for parts, leaves in zip(earlier or [], self.past, strict=False):
                for part, leaf in zip(parts, leaves, strict=True):
                    if part.grad is not None and leaf.grad is not None:
                        leaf.grad[:start] += part.grad


def _keys_and_values(model: Llama, ids_N: Tensor, past: KeyValues | None) -> KeyValues:
    """Of some tokens of the root, with a graph if gradients are enabled."""
    layout = TreeLayout.build(
        prefix=len(ids_N), suffixes=[], past=past, collects=True, device=ids_N.device
    )
    forward_tree(model, ids_N, layout)
    return layout.collected


def _joined(past: KeyValues, new: KeyValues) -> KeyValues:
    return [
        (torch.cat([k, more_k]), torch.cat([v, more_v]))
        for (k, v), (more_k, more_v) in zip(past, new, strict=True)
    ]


def tree_attention(
    q_N_H_D: Tensor, k_N_K_D: Tensor, v_N_K_D: Tensor, layout: TreeLayout, layer: int
) -> Tensor:
    """Attention output `[N, H, D]`, scaled by 1/sqrt(D); gradients reach the root's keys too."""
    if layout.collects:
        layout.collected.append((k_N_K_D, v_N_K_D))
    if q_N_H_D.is_cuda:
        past = None if layout.past is None else layout.past[layer]
        return fused_tree_attention(q_N_H_D, k_N_K_D, v_N_K_D, past, layout)
    if layout.past is None:
        past_k = past_v = k_N_K_D.new_zeros(0, *k_N_K_D.shape[1:])
    else:
        past_k, past_v = layout.past[layer]
    result: Tensor = _TreeAttention.apply(  # type: ignore[no-untyped-call] # torch: untyped
        q_N_H_D, k_N_K_D, v_N_K_D, past_k, past_v, layout
    )
    return result


class _TreeAttention(torch.autograd.Function):
    """Softmax over shared keys and own past, joined by their maximum and sum.

    The backward pass recomputes the probabilities from the log-sum-exp, as FlashAttention does
    (arXiv 2205.14135, appendix B.2); the formulas do not ask which keys a part holds.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q_N_H_D: Tensor,
        k_N_K_D: Tensor,
        v_N_K_D: Tensor,
        past_k: Tensor,
        past_v: Tensor,
        layout: TreeLayout,
    ) -> Tensor:
        keys_K_S_D, values_K_S_D = (
            _shared(k_N_K_D, past_k, layout),
            _shared(v_N_K_D, past_v, layout),
        )
        out_N_H_D = torch.empty_like(q_N_H_D)
        lses = []
        for segment in layout.segments:
            own = slice(segment.start, segment.stop)
            q = _queries(q_N_H_D[own], k_N_K_D.shape[1])
            k, v = k_N_K_D[own].transpose(0, 1), v_N_K_D[own].transpose(0, 1)
            scores = _own_scores(q, k)
            top = scores.amax(-1, keepdim=True)
            wide = None
            if segment.shared:
                wide = q @ keys_K_S_D[:, : segment.shared].mT
                top = torch.maximum(top, wide.amax(-1, keepdim=True))
            scores = scores.sub_(top).exp_()
            total = scores.sum(-1, keepdim=True)
            out = scores @ v
            if wide is not None:
                wide = wide.sub_(top).exp_()
                total += wide.sum(-1, keepdim=True)
                out += wide @ values_K_S_D[:, : segment.shared]
            out_N_H_D[own] = _flat(out.div_(total), segment)
            lses.append(total.log_().add_(top))
        ctx.save_for_backward(q_N_H_D, k_N_K_D, v_N_K_D, past_k, past_v, out_N_H_D, *lses)
        # Without the tensors it carries: those of `collected` depend on this very node, and such a
        # circle is never freed (45 MB a step of SmolLM2).
        ctx.layout = replace(layout, past=None, collected=[], collects=False)
        return out_N_H_D

    @staticmethod
    def backward(
        ctx: Any, *grads: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None, None]:
        q_N_H_D, k_N_K_D, v_N_K_D, past_k, past_v, out_N_H_D, *lses = ctx.saved_tensors
        layout: TreeLayout = ctx.layout
        kv_heads = k_N_K_D.shape[1]
        keys_K_S_D, values_K_S_D = (
            _shared(k_N_K_D, past_k, layout),
            _shared(v_N_K_D, past_v, layout),
        )
        grad_keys, grad_values = torch.zeros_like(keys_K_S_D), torch.zeros_like(values_K_S_D)
        grad_q = torch.empty_like(q_N_H_D)
        grad_k, grad_v = torch.empty_like(k_N_K_D), torch.empty_like(v_N_K_D)
        scale = 1.0 / math.sqrt(q_N_H_D.shape[-1])
        for segment, lse in zip(layout.segments, lses, strict=True):
            own = slice(segment.start, segment.stop)
            q = _queries(q_N_H_D[own], kv_heads)
            k, v = k_N_K_D[own].transpose(0, 1), v_N_K_D[own].transpose(0, 1)
            grad = _grouped(grads[0][own], kv_heads)
            delta = (grad * _grouped(out_N_H_D[own], kv_heads)).sum(-1, keepdim=True)
            p = _own_scores(q, k).sub_(lse).exp_()
            grad_v[own] = (p.mT @ grad).transpose(0, 1)
            slope = (grad @ v.mT).sub_(delta).mul_(p)
            grad_k[own] = (slope.mT @ q).transpose(0, 1)
            grad_own_q = slope @ k
            if segment.shared:
                seen = slice(0, segment.shared)
                p = (q @ keys_K_S_D[:, seen].mT).sub_(lse).exp_()
                grad_values[:, seen] += p.mT @ grad
                slope = (grad @ values_K_S_D[:, seen].mT).sub_(delta).mul_(p)
                grad_keys[:, seen] += slope.mT @ q
                grad_own_q += slope @ keys_K_S_D[:, seen]
            grad_q[own] = _flat(grad_own_q.mul_(scale), segment)
        root, prefix = layout.root, layout.prefix
        grad_k[:prefix] += grad_keys[:, root:].transpose(0, 1)
        grad_v[:prefix] += grad_values[:, root:].transpose(0, 1)
        has_root = root > 0 and ctx.needs_input_grad[3]
        return (
            grad_q,
            grad_k,
            grad_v,
            grad_keys[:, :root].transpose(0, 1) if has_root else None,
            grad_values[:, :root].transpose(0, 1) if has_root else None,
            None,
        )


def _shared(x_N_K_D: Tensor, past: Tensor, layout: TreeLayout) -> Tensor:
    """Root and prefix, one contiguous block per key-value head."""
    return torch.cat([past, x_N_K_D[: layout.prefix]]).transpose(0, 1).contiguous()


def _grouped(x_L_H_D: Tensor, kv_heads: int) -> Tensor:
    """`[K, G * L, D]`: the queries that share a key-value head, one head after the other."""
    count, heads, size = x_L_H_D.shape
    grouped = x_L_H_D.view(count, kv_heads, heads // kv_heads, size)
    return grouped.permute(1, 2, 0, 3).reshape(kv_heads, -1, size)


def _queries(q_L_H_D: Tensor, kv_heads: int) -> Tensor:
    return _grouped(q_L_H_D, kv_heads) * (1.0 / math.sqrt(q_L_H_D.shape[-1]))


def _own_scores(q_K_GL_D: Tensor, k_K_L_D: Tensor) -> Tensor:
    """Scores against the segment's own keys, the future at minus infinity."""
    length = k_K_L_D.shape[1]
    scores = q_K_GL_D @ k_K_L_D.mT
    future = torch.ones(length, length, dtype=torch.bool, device=scores.device).triu(1)
    scores.view(scores.shape[0], -1, length, length).masked_fill_(future, -math.inf)
    return scores


def _flat(x_K_GL_D: Tensor, segment: Segment) -> Tensor:
    """Back from `_grouped` to `[L, H, D]`."""
    kv_heads, _, size = x_K_GL_D.shape
    length = segment.stop - segment.start
    grouped = x_K_GL_D.view(kv_heads, -1, length, size)
    return grouped.permute(2, 0, 1, 3).reshape(length, -1, size)
