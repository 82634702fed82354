"""Data parallelism: ranks share the rows of a step, and their gradients add up.

Every rank knows all rows and their streams, whose weights are divided by global denominators
already; it runs its own rows, and gradients are *summed*. Two ways:

- `replicated`: every rank holds all weights; gradients are summed at the end (DDP without its
  buckets). Right for adapters, whose gradients are small.
- `sharded`: each block's weights lie in shards over the ranks (FSDP2) and are gathered for the time
  of its pass; embedding, norm and head are replicated. FSDP2 averages, which a factor of the world
  size undoes. All ranks run the same number of packs; a rank with fewer adds empty ones, since a
  rank that is done would leave the others waiting for its part of a block.

Works over gloo on CPUs and NCCL on CUDA; the second has not been run yet. Start processes with
`torchrun` and call `torch.distributed.init_process_group` first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

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
from training.passes import PassOptions, forward_backward
from training.types import ObjectiveSpec, Row


class Layout(StrEnum):
    """Where weights lie."""

    REPLICATED = "replicated"
    """All of them on every rank."""
    SHARDED = "sharded"
    """Blocks in shards over the ranks."""


class Ranks:
    """This process as one of the ranks; `model` must have been through `training.trainable`."""

    def __init__(self, model: Llama, named: Mapping[str, nn.Parameter], *, layout: Layout) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.layout = layout
        self._model = model
        self._names = list(named)
        if layout is Layout.SHARDED:
            device = model.model.embed_tokens.weight.device.type
            mesh = init_device_mesh(device, (self.world,))
            for layer in model.model.layers:
                fully_shard(layer, mesh=mesh)

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
        before = [None if p.grad is None else p.grad.clone() for p in self.parameters]
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
            agree=self._most if self.layout is Layout.SHARDED else lambda packs: packs,
        )
        for parameter, earlier in zip(self.parameters, before, strict=True):
            self._sum_gradient(parameter)
            if earlier is not None and parameter.grad is not None:
                parameter.grad += earlier
        return self._summed(stats)

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

    def _most(self, packs: int) -> int:
        most = torch.tensor(packs, device=self._model.model.embed_tokens.weight.device)
        dist.all_reduce(most, dist.ReduceOp.MAX)
        return int(most)

    def _summed(self, stats: PassStats) -> PassStats:
        """Statistics of the step; lists stay those of this rank."""
        names = (
            "loss",
            "policy_loss",
            "env_nll_sum",
            "n_env_tokens",
            "row_tokens",
            "packed_tokens",
            "packs",
            "clipped",
            "reference_kl_sum",
        )
        env = 0.0 if stats.env_loss is None else stats.env_loss
        device = self._model.model.embed_tokens.weight.device
        totals = torch.tensor(
            [*(float(getattr(stats, name)) for name in names), env],
            dtype=torch.float64,
            device=device,
        )
        dist.all_reduce(totals)
        *values, env = totals.tolist()
        kinds = {"loss", "policy_loss", "env_nll_sum", "reference_kl_sum"}
        summed = {
            name: value if name in kinds else int(value)
            for name, value in zip(names, values, strict=True)
        }
        return replace(stats, env_loss=None if stats.env_loss is None else env, **summed)  # type: ignore[arg-type] # by name


def shares(streams: Streams, world: int) -> list[list[int]]:
    """Rows of each rank: every row once, the longest first to the rank with the fewest tokens."""
    lengths = [needed_inputs(stream) for stream in streams.rows]
    tokens, ranks = [0] * world, [[] for _ in range(world)]  # type: list[int], list[list[int]]
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        rank = tokens.index(min(tokens))
        tokens[rank] += lengths[index]
        ranks[rank].append(index)
    return [sorted(members) for members in ranks]
