"""Ours against gepa with a real model: the bundled one, on files and questions in a terminal.

Both run as searches of the product, on the same environment, rubric, seed harness and offline
proposers, with the same number of rollouts, one after the other on the same servers. Ours keeps a
quarter of its rollouts for its certificate and claims what that shows. gepa needs none: it keeps
the few that a search must, and claims what it prints, its best validation mean.

What they end with is then run on the sealed tasks, outside every budget, in one run with the seed
harness and under the same sampling seeds.

    make bench NAME=optimizer_llm                                      three seeds: an hour or more
    make bench NAME=optimizer_llm ARGS="--rollouts 150 --seeds 1"      a look

A line for each engine and seed, and for each engine over the seeds. There is no bar but the budget.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.children import tied
from benchmarks.figures import Figure
from benchmarks.optimizer.report import Line
from benchmarks.optimizer.results import RIVAL_PYTHON
from benchmarks.stack import ROOT, free_port, running, use_temporary_data

ENGINES = {"ours": "factorial", "gepa": "gepa"}
CERTIFY_SHARE = 0.25
MODEL_NAME = "smollm2-135m"
START_LIMIT_S = 180.0
POLL_S = 0.5


@dataclass(frozen=True)
class Ended:
    """A search of one engine, as far as it is compared."""

    engine: str
    search: int
    harness: int
    """What the engine ends with; the seed's where it found nothing."""
    claimed_gain: float
    claimed_score: float | None
    claims_improved: bool
    rollouts: int
    tokens: int
    wall_s: float
    state: str


def run(arguments: Sequence[str] = ()) -> Iterator[Line | Figure]:
    options = _parser().parse_args(arguments)
    with contextlib.ExitStack() as stack:
        os.environ["SWITCHBACK_MODEL_DIR"] = str(_model())
        os.environ["SWITCHBACK_MODEL_PORT"] = str(free_port())
        _put_gepa_on_the_path(stack)
        stack.enter_context(use_temporary_data())
        stack.enter_context(running(limit_s=START_LIMIT_S, model=True))
        yield from _compared(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks optimizer_llm", description=__doc__)
    parser.add_argument("--rollouts", type=int, default=600, help="of each search")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--train", type=int, default=120, help="tasks")
    parser.add_argument("--select", type=int, default=60, help="tasks")
    parser.add_argument("--test", type=int, default=120, help="sealed tasks")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for one search")
    return parser


def _compared(options: argparse.Namespace) -> Iterator[Line | Figure]:
    from benchmarks.optimizer_llm_room import Room

    room = Room.made(train=options.train, select=options.select, test=options.test)
    names = options.engines.split(",")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    most = 0
    for seed in range(options.first, options.first + options.seeds):
        ended = []
        for name in names:
            _say(f"seed {seed}: {name} searches with {options.rollouts} rollouts")
            ended.append(room.search(name, ENGINES[name], seed, options.rollouts, options.limit))
        _say(f"seed {seed}: sealed tasks")
        sealed = room.sealed([each.harness for each in ended], seed, options.limit)
        for each in ended:
            values = {
                "seed": seed,
                "sealed_score": sealed.score(each.harness),
                "sealed_gain": sealed.gain(each.harness),
                "claimed_score": each.claimed_score,
                "claimed_gain": each.claimed_gain,
                "claims_improved": each.claims_improved,
                "calls": each.rollouts,
                "tokens": each.tokens,
                "wall_s": each.wall_s,
                "state": each.state,
            }
            found[each.engine].append(values)
            most = max(most, each.rollouts)
            yield Line(f"optimizer_llm.{seed}.{each.engine}", values)
        yield Line(f"optimizer_llm.{seed}.seed_harness", {"sealed_score": sealed.score(None)})
    for name, rows in found.items():
        yield Line(f"optimizer_llm.{name}", {"seeds": len(rows), **_means(rows)})
    over = max(most - options.rollouts, 0)
    yield Figure("optimizer_llm.rollouts_over_budget", over, 0)


def _means(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    names = ("sealed_score", "sealed_gain", "claimed_score", "claimed_gain", "calls", "wall_s")
    means: dict[str, float | None] = {}
    for name in names:
        known = [row[name] for row in rows if row[name] is not None]
        means[name] = fmean(known) if known else None
    return means


def _model() -> Path:
    """The folder of the prepared model: the one that is set, the demo's, or a new one."""
    for known in (os.environ.get("SWITCHBACK_MODEL_DIR"), ROOT / "var/models" / MODEL_NAME):
        if known and (Path(known) / "config.json").exists():
            return Path(known).resolve()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    target = cache / "switchback/models" / MODEL_NAME
    if not (target / "config.json").exists():
        _say(f"preparing the model in {target}")
        command = [sys.executable, "-m", "training.prepare", "--out", str(target)]
        subprocess.run(tied(command), cwd=ROOT, check=True, stdout=sys.stderr)
    return target


def _put_gepa_on_the_path(stack: contextlib.ExitStack) -> None:
    """Where workers find it: gepa alone, for the rest of its environment is not the product's.

    Raises SystemExit if it is not installed.
    """
    places = RIVAL_PYTHON.parent.parent.glob("lib/python*/site-packages/gepa")
    package = next(places, None)
    if package is None:
        raise SystemExit("gepa is missing: `make bench-rivals` installs it")
    folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="switchback-gepa-"))
    Path(folder, "gepa").symlink_to(package)
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in (folder, before) if part)
    stack.callback(os.environ.__setitem__, "PYTHONPATH", before)


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
