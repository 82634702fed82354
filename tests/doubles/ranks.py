"""Ranks of the job's own backend: `python -m tests.doubles.ranks --rank N …`, or one alone.

`work` is done by two of them and, in the test, by one process; what they find has to be equal. Rank
0 writes it to a file.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from tests.training.builders import make_step
from training.backends.base import AdamSpec
from training.backends.dist import DistSession
from training.backends.local import LocalSession, ModelSpec
from training.lora import LoraSpec
from training.losses import build_streams
from training.parallel import Layout
from training.types import EnvNorm, MismatchCorrection, ObjectiveSpec

SPEC = ObjectiveSpec(lambda_env=0.3, env_norm=EnvNorm.GLOBAL_TOKENS)
ROWS = make_step(groups=1, attempts=5, shared=40)
ADAM = AdamSpec(learning_rate=1e-2, clip_norm=0.0)


def model_spec(folder: Path, kind: str, dtype: torch.dtype = torch.float64) -> ModelSpec:
    """Few tokens per pack, so that ranks have unequally many."""
    lora = LoraSpec(rank=3) if kind == "adapters" else None
    return ModelSpec(folder, lora, dtype=dtype, budget_tokens=60, head_chunk=16)


def work(session: LocalSession, folder: Path) -> dict[str, Any]:
    """Each verb; the gradient shows in the moments of the first step, which is not clipped."""
    streams = build_streams(ROWS, SPEC)
    for _ in range(2):  # what is there already stays there
        stats = session.forward_backward(ROWS, streams, SPEC).result()
    norm = session.optim_step(ADAM).result().grad_norm
    found: dict[str, Any] = {
        "stats": replace(stats, seconds=0.0, packs=0, packed_tokens=0),
        "norm": norm,
        "forward": session.forward(ROWS, temperature=0.9).result(),
        "files": session.state_files(),
    }
    if session.spec.lora is not None:
        asked = replace(SPEC, kl_coef=0.1, mismatch=MismatchCorrection.TRUNCATE)
        found["scored"] = session.scored(ROWS, asked).result()
    session.save_state(folder / "state").result()
    found["published"] = session.publish(folder / "published", 1).result().sha256
    session.forward_backward(ROWS, streams, SPEC).result()
    session.optim_step(ADAM).result()
    found["straight_on"] = session.state_files()
    session.load_state(folder / "state").result()
    session.forward_backward(ROWS, streams, SPEC).result()
    session.optim_step(ADAM).result()
    found["resumed"] = session.state_files()
    return found


def main() -> None:
    """One of two."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layout", type=Layout, required=True)
    parser.add_argument("--kind", required=True)
    parser.add_argument("--dtype", default="float64")
    options = parser.parse_args()
    torch.set_num_threads(1)
    meeting = f"file://{options.out.parent}/meeting"
    dist.init_process_group(
        "gloo",
        init_method=meeting,
        rank=options.rank,
        world_size=2,
        timeout=timedelta(seconds=240),
    )
    dtype = getattr(torch, options.dtype)
    session = DistSession(model_spec(options.model, options.kind, dtype), options.layout)
    if options.rank == 0:
        torch.save(work(session, options.out.parent), options.out)
        session.close()
    else:
        session.follow()
    # torch's own threads are not joined when the interpreter takes its libraries apart, which on a
    # busy machine ends the process by abort.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
