"""One pass over the rows of a step: forward, both losses, backward; and scoring without gradient.

The numeric core that every backend on torch shares; what a backend adds is where it runs, how ranks
add up and what the optimiser does. Rows become a root and packs below it, each pack is one forward
pass for both losses, and the head meets only positions that carry a weight (`training.head`), chunk
by chunk with loss and gradient at once, so no table of logits outlives its chunk.

Weights of the streams are global already. A rank or a micro-batch passes its own rows with their
streams, gradients add up in `.grad`, and the caller sums over ranks. Lambda 0 touches nothing of
the environment term, and a KL coefficient of 0 nothing of the reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from training import objective
from training.backends.base import PassStats
from training.head import DEFAULT_CHUNK, HeadGradient, chunked_logprobs
from training.llama import Llama
from training.losses import RowStream, Streams
from training.packing import (
    DEFAULT_BUDGET_TOKENS,
    Pack,
    first_input,
    needed_inputs,
    pack_rows,
    shared_root,
)
from training.tree import KeyValues, Root, TreeLayout, forward_tree
from training.types import ObjectiveSpec, Row

SCORING_TOKENS = 2048
"""Of one pass without gradient, at least: it keeps no activations, and larger packs share more of
what their rows begin with.
"""
MIN_ROOT_TOKENS = 32
"""A shorter common beginning is not worth a pass of its own."""
_NOTHING = Pack((0,), (), ())
"""One token, for a pass that is there for the other ranks' sake."""


@dataclass(frozen=True, slots=True)
class PassOptions:
    """How a pass is cut into pieces; none of it changes the result beyond rounding."""

    budget_tokens: int = DEFAULT_BUDGET_TOKENS
    """Most tokens of one forward pass; a single longer row is not cut."""
    head_chunk: int = DEFAULT_CHUNK
    """Rows of logits that exist at once."""
    is_checkpointed: bool = False
    """Recompute each block in the backward pass: less memory, about a third more time."""
    measures_entropy: bool = True
    shares_root: bool = True
    """Compute what all rows begin with once for all packs; sharded weights do not allow it."""


def forward_backward(
    model: Llama,
    rows: Sequence[Row],
    streams: Streams,
    spec: ObjectiveSpec,
    options: PassOptions,
    *,
    on_pack: Callable[[], None] = lambda: None,
    agree: Callable[[int], int] = lambda packs: packs,
) -> PassStats:
    """Add the gradient of these rows to the model's parameters, pack by pack.

    The model must have been through `training.trainable`. `streams.rows` has one entry per row.
    `on_pack` is called after each pack; what it raises ends the pass. `agree` says how many packs
    there have to be, given how many there are: ranks whose weights are sharded must run equally
    many, and a rank with fewer adds passes whose gradient is zero.
    """
    started = time.perf_counter()
    run = _Pass(model, rows, streams, spec, options)
    needed = [needed_inputs(stream) for stream in streams.rows]
    length, packs = _plan(rows, streams, needed, options)
    root = None
    if length:
        first = next(i for i, n in enumerate(needed) if n > 0)
        ids_P = run.indices(rows[first].ids[:length])
        root = Root(model, ids_P, most_tokens=options.budget_tokens)
    # Before the first pack: a rank that asks later would meet another one in the middle of a block.
    missing = agree(len(packs)) - len(packs)
    for pack in packs:
        run.pack_backward(pack, length, root)
        on_pack()
    for _ in range(missing):
        run.empty_backward()
        on_pack()
    if root is not None:
        root.backward()
        on_pack()
    run.finish()
    sums = run.sums
    return PassStats(
        loss=sums.policy + sums.env,
        policy_loss=sums.policy,
        env_loss=sums.env / spec.lambda_env if streams.has_env else None,
        log_ratios=tuple(sums.log_ratios),
        entropies=tuple(sums.entropies),
        env_nll_sum=sums.env_nll,
        n_env_tokens=sums.n_env,
        row_tokens=sum(needed),
        packed_tokens=length + sum(pack.n_tokens for pack in packs),
        packs=len(packs),
        seconds=time.perf_counter() - started,
        clipped=sums.clipped,
        reference_kl_sum=sums.reference_kl,
    )


def logprobs(
    model: Llama,
    rows: Sequence[Row],
    *,
    temperature: float,
    options: PassOptions,
    agree: Callable[[int], int] = lambda packs: packs,
) -> list[list[float]]:
    """Log-probs of every target of each row, without gradient; `agree` as in `forward_backward`."""
    packs = pack_rows(
        [row.ids for row in rows],
        [len(row.ids) - 1 for row in rows],
        budget_tokens=max(options.budget_tokens, SCORING_TOKENS),
    )
    result: list[list[float]] = [[] for _ in rows]
    missing = agree(len(packs)) - len(packs)
    with torch.no_grad():
        for pack in packs:
            hidden_NH = _hidden(model, pack, options)
            for member, index in enumerate(pack.rows):
                targets = range(len(rows[index].ids) - 1)
                flat = _indices(model, pack.flat_positions(member, targets))
                lp_T = chunked_logprobs(
                    hidden_NH[flat],
                    model.lm_head.weight,
                    _indices(model, rows[index].ids[1:]),
                    temperature=temperature,
                    chunk=options.head_chunk,
                )
                result[index] = lp_T.tolist()
        for _ in range(missing):
            _hidden(model, _NOTHING, options)
    return result


def _plan(
    rows: Sequence[Row], streams: Streams, needed: Sequence[int], options: PassOptions
) -> tuple[int, list[Pack]]:
    """Length of the root, and packs of what lies below it.

    A root pays when it would otherwise be computed in more than one pack.
    """
    ids = [row.ids for row in rows]
    firsts = [first_input(stream) for stream in streams.rows]
    budget = options.budget_tokens
    root = shared_root(ids, needed, firsts)
    if options.shares_root and root >= MIN_ROOT_TOKENS:
        below = pack_rows(
            [i[root:] for i in ids], [max(n - root, 0) for n in needed], budget_tokens=budget
        )
        if len(below) > 1:
            return root, below
    return 0, pack_rows(ids, needed, budget_tokens=budget)


def _hidden(
    model: Llama, pack: Pack, options: PassOptions, past: KeyValues | None = None
) -> Tensor:
    layout = TreeLayout.build(
        prefix=len(pack.prefix),
        suffixes=[len(suffix) for suffix in pack.suffixes],
        past=past,
        device=model.model.embed_tokens.weight.device,
    )
    ids = [*pack.prefix, *(token for suffix in pack.suffixes for token in suffix)]
    return forward_tree(model, _indices(model, ids), layout, checkpoint=options.is_checkpointed)


def _indices(model: Llama, values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.long, device=model.model.embed_tokens.weight.device)


@dataclass(slots=True)
class _Sums:
    policy: float = 0.0
    env: float = 0.0
    env_nll: float = 0.0
    n_env: int = 0
    clipped: int = 0
    reference_kl: float = 0.0
    log_ratios: list[float] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)


class _Pass:
    """What the packs of one pass share."""

    def __init__(
        self,
        model: Llama,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        options: PassOptions,
    ) -> None:
        self.model, self.rows, self.streams = model, rows, streams
        self.spec, self.options = spec, options
        self.sums = _Sums()
        self.head = HeadGradient(model.lm_head.weight, chunk=options.head_chunk)

    def indices(self, values: Sequence[int]) -> Tensor:
        return _indices(self.model, values)

    def pack_backward(self, pack: Pack, length: int, root: Root | None) -> None:
        """Both losses of one pack; `length` tokens of its rows lie in the root."""
        past = None if root is None else root.past
        hidden_NH = _hidden(self.model, pack, self.options, past)
        grad_NH = torch.zeros_like(hidden_NH)
        members = [self.streams.rows[i] for i in pack.rows]
        self._policy(pack, members, length, hidden_NH.detach(), grad_NH)
        if self.streams.has_env:
            self._env(pack, members, length, hidden_NH.detach(), grad_NH)
        hidden_NH.backward(grad_NH)  # type: ignore[no-untyped-call]

    def empty_backward(self) -> None:
        """A pass over one token that adds nothing."""
        hidden_NH = _hidden(self.model, _NOTHING, self.options)
        hidden_NH.backward(torch.zeros_like(hidden_NH))  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        """Hand the head's own gradient over, if it is trained."""
        self.head.finish()

    def _policy(
        self,
        pack: Pack,
        members: Sequence[RowStream],
        length: int,
        hidden_NH: Tensor,
        grad_NH: Tensor,
    ) -> None:
        flat, wanted = self._selection(pack, length, [s.rl_targets for s in members])
        dtype = _accurate(hidden_NH.dtype)
        targets = objective.policy_targets(members, dtype=dtype, device=hidden_NH.device)
        sums = self.sums

        def slope(lp_N: Tensor, piece: slice) -> Tensor:
            part = targets.part(piece.start, piece.stop)
            leaf_N = lp_N.requires_grad_()
            with torch.enable_grad():
                loss = objective.policy_loss(leaf_N, part, self.spec)
            sums.policy += float(loss.detach())
            sums.clipped += objective.count_clipped(lp_N.detach(), part, self.spec)
            log_r_N = part.reference_N - lp_N.detach()
            sums.reference_kl += float(torch.nansum(torch.exp(log_r_N) - 1.0 - log_r_N))
            ratios = leaf_N.detach() - part.old_logprobs_N
            sums.log_ratios += ratios[~torch.isnan(part.old_logprobs_N)].tolist()
            return torch.autograd.grad(loss, leaf_N)[0]

        entropies = sums.entropies if self.options.measures_entropy else None
        self.head.add(
            hidden_NH,
            grad_NH,
            flat,
            wanted,
            slope,
            temperature=self.spec.policy_temperature,
            entropies=entropies,
        )

    def _env(
        self,
        pack: Pack,
        members: Sequence[RowStream],
        length: int,
        hidden_NH: Tensor,
        grad_NH: Tensor,
    ) -> None:
        flat, wanted = self._selection(pack, length, [s.env_targets for s in members])
        dtype = _accurate(hidden_NH.dtype)
        weights_N = objective.env_weights(members, dtype=dtype, device=hidden_NH.device)
        sums = self.sums

        def slope(lp_N: Tensor, piece: slice) -> Tensor:
            sums.env += float(objective.env_loss(lp_N, weights_N[piece]))
            sums.env_nll -= float(lp_N.sum())
            sums.n_env += len(lp_N)
            return -weights_N[piece]

        self.head.add(
            hidden_NH, grad_NH, flat, wanted, slope, temperature=self.spec.env_temperature
        )

    def _selection(
        self, pack: Pack, root: int, targets_M: Sequence[Sequence[int]]
    ) -> tuple[Tensor, Tensor]:
        """Flat positions and wanted tokens of the pack's targets, in the order of its rows."""
        flat: list[int] = []
        wanted: list[int] = []
        for member, (index, targets) in enumerate(zip(pack.rows, targets_M, strict=True)):
            flat += pack.flat_positions(member, [t - root for t in targets])
            wanted += [self.rows[index].ids[t + 1] for t in targets]
        return self.indices(flat), self.indices(wanted)


def _accurate(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32
