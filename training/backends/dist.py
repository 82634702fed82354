"""The local backend over several processes: each has the model, or a shard of it, and some rows.

Rank 0 runs the job; the other ranks follow: every verb in which ranks meet is told to them first
(`follow`). How rows are shared and gradients add up is `training.parallel`; every rank then takes
the same step, each of what lies on it. Rank 0 alone writes files, and every rank reads them.

Commands go over gloo in a group of their own, in which a rank may wait for as long as a step's
rollouts take; computing meets within the time that a pass may take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from training.backends.base import AdamSpec, OptimStats, PassStats, WeightVersion
from training.backends.local import LocalSession, ModelSpec, done
from training.losses import Streams
from training.parallel import Layout, Ranks
from training.shards import whole
from training.types import ObjectiveSpec, Row

COMMAND_LIMIT = timedelta(days=7)
"""Rank 0 tells within the deadlines of its phases; a rank that is left alone ends with torchrun."""


def start(*, pass_limit_s: float) -> None:
    """Joins the group that torchrun describes in the environment; gloo on CPUs, NCCL on devices."""
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    dist.init_process_group(backend, timeout=timedelta(seconds=pass_limit_s))


class DistSession(LocalSession):
    """Rank 0's side; see `backends.base.Session`."""

    def __init__(self, spec: ModelSpec, layout: Layout = Layout.REPLICATED) -> None:
        self._layout = layout
        self._commands = dist.new_group(backend="gloo", timeout=COMMAND_LIMIT)
        super().__init__(_placed(spec))

    @property
    def rank(self) -> int:
        """0 for the one that tells."""
        return self._ranks.rank

    def forward(self, rows: Sequence[Row], *, temperature: float) -> Future[list[list[float]]]:
        """Every rank scores its share."""
        self._tell("forward", list(rows), temperature=temperature)
        return super().forward(rows, temperature=temperature)

    def scored(self, rows: Sequence[Row], spec: ObjectiveSpec) -> Future[list[Row]]:
        """Every rank scores its share."""
        self._tell("scored", list(rows), spec)
        return super().scored(rows, spec)

    def forward_backward(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        *,
        on_pack: Callable[[], None] = lambda: None,
    ) -> Future[PassStats]:
        """Every rank passes its share; gradients add up to those of one process."""
        self._tell("forward_backward", list(rows), streams, spec)
        stats = super().forward_backward(rows, streams, spec, on_pack=on_pack).result()
        return done(replace(stats, halvings=self._ranks.most(stats.halvings)))

    def optim_step(self, adam: AdamSpec) -> Future[OptimStats]:
        """The same on every rank."""
        self._tell("optim_step", adam)
        return super().optim_step(adam)

    def state_files(self) -> dict[str, bytes]:
        """Of the whole, however it lies."""
        self._tell("gather", True)
        return super().state_files()

    def load_state(self, folder: Path) -> Future[None]:
        """Every rank reads the same checkpoint."""
        self._tell("load_state", folder)
        return super().load_state(folder)

    def publish(self, root: Path, number: int) -> Future[WeightVersion]:
        """Of the whole, however it lies."""
        self._tell("gather", False)
        return super().publish(root, number)

    def close(self) -> None:
        """Lets the others end."""
        self._tell("close")
        dist.destroy_process_group()

    def follow(self) -> None:
        """What the other ranks do until rank 0 closes."""
        while True:
            told: list[Any] = [None, (), {}]
            dist.broadcast_object_list(told, src=0, group=self._commands)
            verb, arguments, named = told
            if verb == "close":
                dist.destroy_process_group()
                return
            if verb == "gather":
                self._gather(*arguments)
            else:
                getattr(self, verb)(*arguments, **named)

    def _tell(self, verb: str, *arguments: Any, **named: Any) -> None:
        if self.rank == 0:
            told = [verb, arguments, named]
            dist.broadcast_object_list(told, src=0, group=self._commands)

    def _gather(self, with_moments: bool) -> None:
        """Hands the shards over in the order in which rank 0 asks for them."""
        if self._layout is Layout.REPLICATED:
            return
        if with_moments:
            self._optimiser.tensors()
        for parameter in self.parameters:
            whole(parameter.detach())

    # --- where a pass of one process differs --------------------------------------------------

    def _spread(self) -> None:
        self._ranks = Ranks(self.model, layout=self._layout)

    @property
    def _may_halve(self) -> bool:
        # In shards the others would wait in the middle of a block for a rank that begins again.
        return self._layout is Layout.REPLICATED

    def _logprobs(self, rows: Sequence[Row], temperature: float) -> list[list[float]]:
        return self._ranks.logprobs(rows, temperature=temperature, options=self._options())

    def _grad_norm(self) -> float:
        return self._ranks.grad_norm()

    def _pass(
        self,
        rows: Sequence[Row],
        streams: Streams,
        spec: ObjectiveSpec,
        on_pack: Callable[[], None],
    ) -> PassStats:
        return self._ranks.forward_backward(rows, streams, spec, self._options(), on_pack=on_pack)


def _placed(spec: ModelSpec) -> ModelSpec:
    """One device per rank, where there are devices."""
    if spec.device != "cuda":
        return spec
    device = f"cuda:{dist.get_rank() % torch.cuda.device_count()}"
    torch.cuda.set_device(device)
    return replace(spec, device=device)
