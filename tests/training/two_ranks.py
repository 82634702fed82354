"""One of two processes that share a step: `python -m tests.training.two_ranks LAYOUT KIND RANK …`.

Writes the gradient and loss of the whole step to a file, which the test compares with one process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from tests.training.builders import make_step
from training.llama import load_llama
from training.lora import LoraSpec
from training.losses import build_streams
from training.parallel import Layout, Ranks
from training.passes import PassOptions
from training.trainable import make_trainable
from training.types import EnvNorm, ObjectiveSpec

SPEC = ObjectiveSpec(lambda_env=0.3, env_norm=EnvNorm.GLOBAL_TOKENS)
OPTIONS = PassOptions(budget_tokens=60, head_chunk=16, measures_entropy=False)
ROWS = make_step(groups=1, attempts=5, shared=40)


def main(layout: str, kind: str, rank: int, folder: Path, out: Path) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{out.parent}/meeting", rank=rank, world_size=2
    )
    model = load_llama(folder, dtype=torch.float64)
    named = make_trainable(model, LoraSpec(rank=3) if kind == "adapters" else None)
    with torch.no_grad():
        for number, parameter in enumerate(named.values()):
            generator = torch.Generator().manual_seed(number)
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.05)
    ranks = Ranks(model, named, layout=Layout(layout))
    # Twice: what is there already stays there.
    for _ in range(2):
        stats = ranks.forward_backward(ROWS, build_streams(ROWS, SPEC), SPEC, OPTIONS)
    found = {"loss": stats.loss, "norm": ranks.grad_norm(), "gradients": ranks.gradients()}
    if rank == 0:
        torch.save(found, out)
    dist.barrier()  # no rank leaves while another still reads from it
    dist.destroy_process_group()
    # All is written and compared by now. torch's own threads are not joined when the interpreter
    # takes its libraries apart, which on a busy machine ends the process by abort.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4]), Path(sys.argv[5]))
