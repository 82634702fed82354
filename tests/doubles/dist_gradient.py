"""Under torchrun: the gradient and one step of a step's rows, over all ranks; rank 0 writes them.

`torchrun --nproc-per-node 2 -m tests.doubles.dist_gradient --model DIR --out FILE`
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import torch

from tests.training.builders import make_step
from training.backends.base import AdamSpec
from training.backends.dist import DistSession, shares, start
from training.backends.local import LocalSession, ModelSpec
from training.lora import LoraSpec
from training.losses import build_streams
from training.types import ObjectiveSpec

SPEC = ObjectiveSpec(lambda_env=0.5)


def disturb(session: LocalSession) -> None:
    """Away from the start, where half of the gradient is zero."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for parameter in session.parameters:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)


def train(session: LocalSession, *, world: int = 1) -> dict[str, torch.Tensor]:
    """Two passes that add up, then a step; in the pieces that `world` ranks would have."""
    for seed in (0, 1):
        rows = make_step(seed=seed, groups=3)
        streams = build_streams(rows, SPEC)
        for mine in shares([len(row.ids) for row in rows], world):
            own = replace(streams, rows=tuple(streams.rows[i] for i in mine))
            stats = session.forward_backward([rows[i] for i in mine], own, SPEC).result()
    grads = [p.grad for p in session.parameters if p.grad is not None]
    gradient = torch.cat([grad.flatten().clone() for grad in grads])
    session.optim_step(AdamSpec(learning_rate=1e-2)).result()
    weights = torch.cat([p.detach().flatten() for p in session.parameters])
    loss = torch.tensor([stats.loss, float(stats.row_tokens), float(len(stats.log_ratios))])
    return {"gradient": gradient, "weights": weights, "stats": loss}


def model_spec(folder: Path) -> ModelSpec:
    return ModelSpec(folder, LoraSpec(rank=4, seed=3), budget_tokens=60)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    start()
    session = DistSession(model_spec(options.model))
    disturb(session)
    if session.rank == 0:
        torch.save(train(session), options.out)
        session.close()
    else:
        session.follow()
