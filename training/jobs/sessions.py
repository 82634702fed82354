"""From a manifest to the session that trains: one process, or one of several under torchrun."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from training.backends.local import LocalSession, ModelSpec
from training.lora import LoraSpec
from training.manifest import Manifest

PASS_MARGIN_S = 60.0
"""Ranks wait for each other a little longer than a pass may take, so that the deadline tells."""


def is_rank() -> bool:
    """Whether torchrun started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def rank() -> int:
    """Of this process; 0 where it is alone."""
    return int(os.environ.get("RANK", "0")) if is_rank() else 0


def open_session(manifest: Manifest) -> LocalSession:
    """The one that the runner drives; rank 0 under torchrun."""
    torch.set_num_threads(manifest.execution.threads)
    if manifest.execution.backend != "torchrun":
        return LocalSession(model_spec(manifest))
    from training.backends import dist
    from training.parallel import Layout

    dist.start(pass_limit_s=manifest.budgets.update_timeout_s + PASS_MARGIN_S)
    return dist.DistSession(model_spec(manifest), Layout(manifest.execution.shard))


def follow(manifest: Manifest) -> None:
    """Any rank but the first: does what it is told, and ends with it."""
    from training.backends.dist import DistSession

    session = open_session(manifest)
    assert isinstance(session, DistSession)
    session.follow()


def model_spec(manifest: Manifest) -> ModelSpec:
    """What to train, and in which pieces."""
    initial = manifest.model.initial_adapter
    return ModelSpec(
        folder=Path(manifest.model.folder),
        lora=None
        if manifest.lora is None
        else LoraSpec(
            rank=manifest.lora.rank,
            alpha=manifest.lora.alpha,
            seed=manifest.seed,
            targets=manifest.lora.targets,
        ),
        initial_adapter=None if initial is None else Path(initial),
        dtype=getattr(torch, manifest.model.dtype),
        device=manifest.execution.device,
        budget_tokens=manifest.batch.budget_tokens,
        head_chunk=manifest.batch.head_chunk,
        is_checkpointed=manifest.execution.is_checkpointed,
        measures_entropy=manifest.execution.measures_entropy,
    )
