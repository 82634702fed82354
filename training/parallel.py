"""Data parallelism: ranks share the rows of a step, and their gradients add up.

Every rank knows all rows and their streams, whose weights are divided by global denominators
already; it runs its own rows, and gradients are *summed*. Two ways:

- `replicated`: every rank holds all weights; gradients are summed at the end (DDP without its
  buckets). Right for adapters, whose gradients are small.
- `sharded`: each block's weights lie in shards over the ranks (FSDP2) and are gathered for the time
  of its pass, once forward and once backward; embedding, norm and head are replicated. FSDP2
  averages, which a factor of the world size undoes. All ranks run the same number of packs; a rank
  with fewer adds empty ones, since a rank that is done would leave the others waiting for its part
  of a block.

Works over gloo on CPUs and NCCL on CUDA; the second has not been run yet. Call
`torch.distributed.init_process_group` first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from training.backends.base import PassStats
from training.llama import Llama
from training.losses import Streams
from training.packing import needed_inputs
from training.passes import PassOptions, forward_backward, logprobs
from training.types import ObjectiveSpec, Row

T = TypeVar("T")


class Layout(StrEnum):
    """Where weights lie."""

    REPLICATED = "ddp"
    """All of them on every rank."""
    SHARDED = "fsdp2"
    """Blocks in shards over the ranks."""


class Ranks:
    """This process as one of the ranks; `model` must have been through `training.trainable`."""

    def __init__(self, model: Llama, *, layout: Layout) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.layout = layout
        self._model = model
        if layout is Layout.SHARDED:
            device = model.model.embed_tokens.weight.device.type
            mesh = init_device_mesh(device, (self.world,))
            for layer in model.model.layers:
                # Said, because a block counts as a root of its own, and a root keeps its weights
                # between forward and backward by default.
                fully_shard(layer, mesh=mesh, reshard_after_forward=True)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What an optimiser moves on this rank: shards where weights are sharded."""
        return [p for p in self._model.parameters() if p.requires_grad]

    def forward_backward(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        options: PassOptions,
        *,
        on_pack: Callable[[], None] = lambda: None,
    ) -> PassStats:
        """One pass over all rows by all ranks; afterwards `.grad` is that of the whole step.

        Gradients that were there before are kept, as in a pass of one process.
        """
        before = [p.grad for p in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        mine = shares(streams, self.world)[self.rank]
        part = replace(streams, rows=tuple(streams.rows[i] for i in mine))
        stats = forward_backward(
            self._model,
            [rows[i] for i in mine],
            part,
            spec,
            replace(options, shares_root=self.layout is Layout.REPLICATED),
            on_pack=on_pack,
            agree=self._agree,
        )
        for parameter, earlier in zip(self.parameters, before, strict=True):
            self._sum_gradient(parameter)
            if earlier is not None and parameter.grad is not None:
                parameter.grad += earlier
        return _joined(self._gathered(stats))

    def logprobs(
        self, rows: Sequence[Row], *, temperature: float, options: PassOptions
    ) -> list[list[float]]:
        """Of every target of each row, without gradient; every rank scores its share and has all.

        Shares depend on the rows alone, so that ranks need not agree on them.
        """
        parts = balanced([len(row.ids) for row in rows], self.world)
        mine = [rows[i] for i in parts[self.rank]]
        found = logprobs(
            self._model, mine, temperature=temperature, options=options, agree=self._agree
        )
        result: list[list[float]] = [[] for _ in rows]
        for members, values in zip(parts, self._gathered(found), strict=True):
            for index, row in zip(members, values, strict=True):
                result[index] = row
        return result

    def most(self, value: int) -> int:
        """The largest of what the ranks have."""
        largest = torch.tensor(value, device=self._model.model.embed_tokens.weight.device)
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        return int(largest)

    def grad_norm(self) -> float:
        """Of the whole gradient, wherever its parts lie."""
        parts = [p.grad for p in self.parameters if p.grad is not None]
        local = [part.to_local() if isinstance(part, DTensor) else part for part in parts]
        squares = [
            # What is replicated would count once per rank.
            value.square().sum(dtype=torch.float64) / (1 if value is not part else self.world)
            for part, value in zip(parts, local, strict=True)
        ]
        total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64)
        dist.all_reduce(total)
        return float(total.sqrt())

    def gradients(self) -> dict[str, Tensor]:
        """Whole gradients by name, on every rank; gathers shards."""
        found = {}
        named = dict(self._model.named_parameters())
        for name in named:
            grad = named[name].grad
            if grad is not None:
                found[name] = grad.full_tensor() if isinstance(grad, DTensor) else grad
        return found

    def _sum_gradient(self, parameter: nn.Parameter) -> None:
        if isinstance(parameter, DTensor):
            if parameter.grad is not None:
                parameter.grad *= self.world  # FSDP2 took the mean
            return
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        dist.all_reduce(parameter.grad)

    def _agree(self, packs: int) -> int:
        """How many packs each rank runs."""
        return packs if self.layout is Layout.REPLICATED else self.most(packs)

    def _gathered(self, value: T) -> list[T]:
        """What each rank has, in their order, on every rank."""
        found: list[T | None] = [None] * self.world
        dist.all_gather_object(found, value)
        return [each for each in found if each is not None]


def shares(streams: Streams, world: int) -> list[list[int]]:
    """Rows of each rank: every row once, balanced by the tokens that its pass needs."""
    return balanced([needed_inputs(stream) for stream in streams.rows], world)


def balanced(lengths: Sequence[int], world: int) -> list[list[int]]:
    """Every index once, the longest first to the rank with the fewest tokens; each in order."""
    tokens, ranks = [0] * world, [[] for _ in range(world)]  # type: list[int], list[list[int]]
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        rank = tokens.index(min(tokens))
        tokens[rank] += lengths[index]
        ranks[rank].append(index)
    return [sorted(members) for members in ranks]


def _joined(parts: Sequence[PassStats]) -> PassStats:
    """One pass as its ranks saw it: sums, and the time of the slowest."""
    env = [part.env_loss for part in parts if part.env_loss is not None]
    return replace(
        parts[0],
        loss=math.fsum(part.loss for part in parts),
        policy_loss=math.fsum(part.policy_loss for part in parts),
        env_loss=math.fsum(env) if env else None,
        log_ratios=tuple(value for part in parts for value in part.log_ratios),
        entropies=tuple(value for part in parts for value in part.entropies),
        env_nll_sum=math.fsum(part.env_nll_sum for part in parts),
        n_env_tokens=sum(part.n_env_tokens for part in parts),
        row_tokens=sum(part.row_tokens for part in parts),
        packed_tokens=sum(part.packed_tokens for part in parts),
        packs=sum(part.packs for part in parts),
        seconds=max(part.seconds for part in parts),
        halvings=max(part.halvings for part in parts),
        clipped=sum(part.clipped for part in parts),
        reference_kl_sum=math.fsum(part.reference_kl_sum for part in parts),
    )
