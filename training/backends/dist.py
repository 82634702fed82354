"""The local backend over several processes: each has the model and a share of the rows.

Started by torchrun. Rank 0 runs the job; the other ranks follow: every verb that computes is told
to them first (`follow`). Adapters are replicated and their gradients summed once per pass, so ranks
may cut their rows into different numbers of packs and nothing waits in between. Weights of the
streams are global already: the sum over ranks is the gradient of one process, whatever the split.
Every rank then takes the same step. Rank 0 alone reads and writes files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from training.backends.base import AdamSpec, OptimStats, PassStats
from training.backends.local import LocalSession, ModelSpec, _done
from training.losses import Streams
from training.types import ObjectiveSpec, Row


def start() -> None:
    """Joins the group that torchrun describes in the environment; gloo on CPUs, NCCL on devices."""
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")


class DistSession(LocalSession):
    """Rank 0's side; see `backends.base.Session`."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(_placed(spec))
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

    def forward_backward(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        *,
        on_pack: Callable[[], None] = lambda: None,
    ) -> Future[PassStats]:
        """Every rank passes its share; gradients add up to those of one process."""
        self._tell("forward_backward", (list(rows), streams, spec))
        return self._share(rows, streams, spec, on_pack)

    def optim_step(self, adam: AdamSpec) -> Future[OptimStats]:
        """The same on every rank."""
        self._tell("optim_step", (adam,))
        return super().optim_step(adam)

    def load_state(self, folder: Path) -> Future[None]:
        """Every rank reads the same checkpoint."""
        self._tell("load_state", (folder,))
        return super().load_state(folder)

    def close(self) -> None:
        """Lets the others end."""
        self._tell("close", ())
        dist.destroy_process_group()

    def _tell(self, verb: str, arguments: tuple[Any, ...]) -> None:
        if self.rank == 0:
            dist.broadcast_object_list([verb, arguments], src=0)

    def _share(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        on_pack: Callable[[], None],
    ) -> Future[PassStats]:
        mine = shares([len(row.ids) for row in rows], self.world)[self.rank]
        own = replace(streams, rows=tuple(streams.rows[i] for i in mine))
        # Only what this pass adds is summed: what was there before is the same on every rank.
        before = [parameter.grad for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.grad = None
        passed = super().forward_backward([rows[i] for i in mine], own, spec, on_pack=on_pack)
        for parameter, earlier in zip(self.parameters, before, strict=True):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            if earlier is not None:
                parameter.grad += earlier
        found: list[PassStats | None] = [None] * self.world
        dist.all_gather_object(found, passed.result())
        return _done(_joined([each for each in found if each is not None]))

    def follow(self) -> None:
        """What the other ranks do until rank 0 closes."""
        while True:
            told: list[Any] = [None, None]
            dist.broadcast_object_list(told, src=0)
            verb, arguments = told
            if verb == "close":
                dist.destroy_process_group()
                return
            if verb == "forward_backward":
                rows, streams, spec = arguments
                self._share(rows, streams, spec, lambda: None)
            elif verb == "optim_step":
                super().optim_step(*arguments)
            else:
                super().load_state(*arguments)


def shares(lengths: Sequence[int], world: int) -> list[list[int]]:
    """Rows of each rank, longest first to whoever has least; each in the order of the rows."""
    found: list[list[int]] = [[] for _ in range(world)]
    held = [0] * world
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        rank = min(range(world), key=lambda r: (held[r], r))
        found[rank].append(index)
        held[rank] += lengths[index]
    return [sorted(each) for each in found]


def _placed(spec: ModelSpec) -> ModelSpec:
    """One device per rank, where there are devices."""
    if spec.device != "cuda":
        return spec
    return replace(spec, device=f"cuda:{dist.get_rank() % torch.cuda.device_count()}")


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
