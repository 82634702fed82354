"""`python -m benchmarks.optimizer.work`: one engine in some worlds of one cell, a JSON line each.

The benchmark starts it, with the interpreter that has the engine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.optimizer.engines import make
from benchmarks.optimizer.worlds import Exhausted, Run, Server, Setting, oracle, select_truth
from benchmarks.optimizer.worlds import make as make_world


def result(
    engine: Run, reference: str, seed: int, setting: Setting | None, budget: int
) -> dict[str, Any]:
    """What one run of an engine came to, with what it really gained."""
    world = make_world(reference, seed, setting)
    server = Server(world, budget)
    began = time.process_time()
    try:
        claim = engine(server, seed)
    except Exhausted:
        claim = server.claim
    cpu_s = time.process_time() - began
    plain = world.seed_document
    return {
        "seed": seed,
        "gain": world.truth(claim.document) - world.truth(plain),
        "select_gain": select_truth(world, claim.document) - select_truth(world, plain),
        "oracle": oracle(world),
        "claimed": claim.gain,
        "is_improved": claim.is_improved,
        "used": server.used,
        "budget": budget,
        "cpu_s": round(cpu_s, 3),
        "document": claim.document,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--world", required=True)
    parser.add_argument("--setting", type=json.loads, default=None)
    parser.add_argument("--budget", type=int, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    options = parser.parse_args(arguments)
    setting = None if options.setting is None else Setting(**options.setting)
    engine = make(options.engine, options.settings)
    out = sys.stdout
    for seed in options.seeds:
        # What an engine prints is its own; the lines here are data.
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            line = result(engine, options.world, seed, setting, options.budget)
        print(json.dumps(line), file=out, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
