"""`make bench NAME=training`: the trainer beside TRL, and the sampler beside transformers.

Figures are ratios of processor seconds of the same work, taken in turns on one thread, because
other work on the machine hardly touches these. Each part runs in a process of its own under a limit
on memory, so that nothing one part holds is charged to another and a cache without bounds ends its
own part only. A line per figure; a line without a bar is there to be read.

Parts: `against_trl` (a step with ECHO against TRL's GRPO step, and equality of the two), `packing`
(ECHO against GRPO, a group as a tree against rows), `sampling`, `memory`, `exact` (what must be
equal), `tinker` (the protocol's routes, and what a call of it costs). What needs a CUDA device is
`benchmarks/gpu.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from benchmarks.children import tied
from benchmarks.figures import Figure

TRL_PART = "against_trl"
PARTS = ("exact", "memory", "packing", "sampling", "tinker", TRL_PART)
TIMEOUT_S = 3600
"""Of one part; on a busy machine a part of two minutes may take many times that."""


def run(arguments: Sequence[str] = ()) -> Iterator[Figure]:
    """All figures, or those of the parts that are named (`--part sampling`)."""
    parser = argparse.ArgumentParser(prog="make bench NAME=training")
    parser.add_argument("--part", action="append", choices=PARTS, help="all of them without it")
    for part in parser.parse_args(arguments).part or PARTS:
        yield from _figures_of(part)


def _figures_of(part: str) -> Iterator[Figure]:
    # TRL lives in an environment over the product's own, `make bench-trl`.
    python = os.environ.get("TRL_PYTHON", sys.executable) if part == TRL_PART else sys.executable
    # Threads that spin while they wait would count as work.
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(
        tied([python, "-m", f"benchmarks.training.{part}"]),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    for line in done.stdout.splitlines():
        if line.startswith('{"figure"'):
            yield Figure(**json.loads(line)["figure"])
    if done.returncode != 0:
        yield Figure(f"training.{part}.exit_code", float(done.returncode), 0.0)
