"""One step of the network over the rows in flight: prefill of new rows and decoding alike.

The N tokens of a step are flat, whatever rows they belong to, so each linear layer is one
product. Attention has two parts, joined by their log-sum-exp: against the prefix, one kernel call
per prefix for all of its tokens (keys are not expanded per row), and against the row's own
tokens, padded to the longest. A step covers a contiguous range of pool rows.

Axes as in `kv.py`; further `N` tokens of the step, `Q` most tokens of a row in this step, `H` =
`K`·`G` query heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from training.attention import flash
from training.engine.adapters import Adapter
from training.engine.kv import Pool, Prefix
from training.engine.weights import BaseWeights

T = TypeVar("T")


@dataclass(frozen=True)
class RowStep:
    """What one row contributes to a step. Rows are given in pool order, without gaps."""

    prefix: Prefix | None
    adapter: Adapter | None
    start: int
    "own tokens that are in the pool already"
    tokens: Sequence[int]
    "tokens to compute, at least one"


@dataclass(frozen=True)
class _Share:
    """Tokens of a step that use one prefix or one adapter; None for all of them."""

    index_n: Tensor | None

    def take(self, x: Tensor) -> Tensor:
        return x if self.index_n is None else x[self.index_n]


class Step:
    """Index tensors of one step, made once and used by every layer."""

    def __init__(self, base: BaseWeights, pool: Pool, first: int, rows: Sequence[RowStep]) -> None:
        config = base.config
        self.first, self.count = first, len(rows)
        self.kv_heads = config.num_key_value_heads
        self.groups = config.num_attention_heads // self.kv_heads
        counts = [len(row.tokens) for row in rows]
        self.widest = max(counts)
        self.is_even = min(counts) == self.widest
        owner = torch.repeat_interleave(torch.arange(self.count), torch.tensor(counts))
        within = torch.cat([torch.arange(count) for count in counts])
        self.slot_N = within + torch.tensor([row.start for row in rows])[owner]
        self.row_N = owner + first
        before = torch.tensor([len(row.prefix.ids) if row.prefix else 0 for row in rows])
        position_N = self.slot_N + before[owner]
        self.ids_N = torch.tensor([token for row in rows for token in row.tokens])
        self.cos_N, self.sin_N = base.cos[position_N], base.sin[position_N]
        self.grid_N = owner * self.widest + within
        self.own = int(self.slot_N.max()) + 1
        self.last_N = torch.tensor(counts).cumsum(0) - 1
        self.mask = self._own_mask(torch.tensor([row.start for row in rows]))
        self.prefixes = _shares([row.prefix for row in rows], owner)
        self.adapters = _shares([row.adapter for row in rows], owner)

    def _own_mask(self, start_R: Tensor) -> Tensor:
        """Additive `[R*K, Q*G, S]`: a query sees own tokens up to itself."""
        slots = torch.arange(self.own)
        query = start_R[:, None] + torch.arange(self.widest)
        hidden = slots > query[:, :, None]
        mask = torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf"))
        shape = (self.count, self.kv_heads, self.widest, self.groups, self.own)
        mask = mask[:, None, :, None].expand(shape)
        return mask.reshape(self.count * self.kv_heads, self.widest * self.groups, self.own)

    def to_grid(self, x_N_K_G_X: Tensor) -> Tensor:
        """Flat tokens to `[R*K, Q*G, X]`."""
        size = x_N_K_G_X.shape[-1]
        if not self.is_even:
            grid = x_N_K_G_X.new_zeros(self.count * self.widest, *x_N_K_G_X.shape[1:])
            x_N_K_G_X = grid.index_copy_(0, self.grid_N, x_N_K_G_X)
        x = x_N_K_G_X.reshape(self.count, self.widest, self.kv_heads, self.groups, size)
        return x.transpose(1, 2).reshape(
            self.count * self.kv_heads, self.widest * self.groups, size
        )

    def from_grid(self, x_RK_QG_X: Tensor) -> Tensor:
        """`[R*K, Q*G, X]` to flat tokens `[N, K, G, X]`."""
        size = x_RK_QG_X.shape[-1]
        x = x_RK_QG_X.view(self.count, self.kv_heads, self.widest, self.groups, size)
        x = x.transpose(1, 2).reshape(-1, self.kv_heads, self.groups, size)
        return x if self.is_even else x[self.grid_N]


def _shares(values: Sequence[T | None], owner_N: Tensor) -> list[tuple[T, _Share]]:
    """Each distinct value with its tokens; rows without a value are left out."""
    members: dict[int, tuple[T, list[int]]] = {}
    for row, value in enumerate(values):
        if value is not None:
            members.setdefault(id(value), (value, []))[1].append(row)
    shares = []
    for value, rows in members.values():
        if len(rows) == len(values):
            shares.append((value, _Share(None)))
        else:
            chosen = torch.isin(owner_N, torch.tensor(rows))
            shares.append((value, _Share(chosen.nonzero()[:, 0])))
    return shares


def forward_step(base: BaseWeights, pool: Pool, first: int, rows: Sequence[RowStep]) -> Tensor:
    """Logits `[R, vocabulary]` after the last token of each row; writes the step's keys and
    values into the pool.

    `rows[i]` is pool row `first + i`; room must be reserved.
    """
    step = Step(base, pool, first, rows)
    config = base.config
    x = base.embedding[step.ids_N]
    shape = (config.hidden_size,)
    for index, layer in enumerate(base.layers):
        normed = F.rms_norm(x, shape, layer.input_norm, config.rms_norm_eps)
        qkv = _linear(layer.linears["qkv"](normed), normed, step, index, "qkv")
        attended = _attention(qkv, base, pool, step, index)
        x = x + _linear(layer.linears["o"](attended), attended, step, index, "o")
        normed = F.rms_norm(x, shape, layer.post_norm, config.rms_norm_eps)
        gate_up = _linear(layer.linears["gate_up"](normed), normed, step, index, "gate_up")
        width = config.intermediate_size
        inner = F.silu(gate_up[:, :width]).mul_(gate_up[:, width:])
        x = x + _linear(layer.linears["down"](inner), inner, step, index, "down")
    last = x if step.widest == 1 else x[step.last_N]
    return base.head(F.rms_norm(last, shape, base.final_norm, config.rms_norm_eps))


def _linear(y: Tensor, x: Tensor, step: Step, layer: int, name: str) -> Tensor:
    """The base product with the adapters' updates added to their own tokens."""
    for adapter, share in step.adapters:
        update = adapter.layers[layer].get(name)
        if update is None:
            continue
        delta = F.linear(F.linear(share.take(x), update.a), update.b)
        if share.index_n is None:
            y += delta
        else:
            y.index_add_(0, share.index_n, delta)
    return y


def _attention(qkv: Tensor, base: BaseWeights, pool: Pool, step: Step, layer: int) -> Tensor:
    config = base.config
    heads, kv_heads, size = (
        config.num_attention_heads,
        config.num_key_value_heads,
        config.head_dim,
    )
    count = qkv.shape[0]
    qkv = qkv.view(count, heads + 2 * kv_heads, size)
    qk = qkv[:, : heads + kv_heads]
    half = size // 2
    turned = torch.cat([-qk[..., half:], qk[..., :half]], dim=-1)
    qk = torch.addcmul(qk * step.cos_N, turned, step.sin_N)
    q = qk[:, :heads].reshape(count, kv_heads, step.groups, size)
    pool.keys[layer][step.row_N, :, step.slot_N] = qk[:, heads:]
    pool.values[layer][step.row_N, :, step.slot_N] = qkv[:, heads + kv_heads :]
    rows = slice(step.first, step.first + step.count)
    keys = pool.keys[layer][rows].view(-1, pool.capacity, size)[:, : step.own]
    values = pool.values[layer][rows].view(-1, pool.capacity, size)[:, : step.own]
    scores = torch.baddbmm(step.mask, step.to_grid(q), keys.transpose(1, 2), alpha=size**-0.5)
    total = scores.logsumexp(dim=-1, keepdim=True)
    out = step.from_grid(torch.bmm(scores.sub_(total).exp_(), values))
    if step.prefixes:
        _add_prefixes(out, step.from_grid(total), q, step, layer)
    return out.reshape(count, heads * size)


def _add_prefixes(out: Tensor, total: Tensor, q_N_K_G_D: Tensor, step: Step, layer: int) -> None:
    """Joins attention to the prefixes into `out` `[N, K, G, D]`, that to the own tokens.

    `total`: log-sum-exp of the own scores, `[N, K, G, 1]`. Two softmaxes over parts of the keys
    make the one over all if each is weighted by its share of the sum. Apart, because the flash
    kernel never writes down queries times prefix: at 900 tokens a prefill takes 1.1 s, not 1.9.
    """
    kv_heads, groups = step.kv_heads, step.groups
    for prefix, share in step.prefixes:
        keys, values = prefix.block.keys[layer], prefix.block.values[layer]
        folded = _by_head(share.take(q_N_K_G_D))[None]
        part, part_total = flash(folded, keys[None], values[None], is_causal=False)
        part = part.reshape(kv_heads, -1, groups, part.shape[-1]).transpose(0, 1)
        part_total = part_total.reshape(kv_heads, -1, groups, 1).transpose(0, 1)
        weight = torch.sigmoid(part_total - share.take(total))
        joined = torch.lerp(share.take(out), part, weight)
        if share.index_n is None:
            out.copy_(joined)
        else:
            out[share.index_n] = joined


def _by_head(x_N_K_G_X: Tensor) -> Tensor:
    """`[N, K, G, X]` to `[K, N*G, X]`: one product per key-value head."""
    return x_N_K_G_X.transpose(0, 1).reshape(x_N_K_G_X.shape[1], -1, x_N_K_G_X.shape[-1])
