"""The gate on simulated pull requests whose truth is known, beside a plain threshold.

    make bench NAME=gate
    make bench NAME=gate ARGS="--requests 100 --tasks 40 --rollouts 400"

Each pull request has 40 tasks of different difficulty, an effect that differs by task around the
one that is named, pass/fail scores and two rollouts in a hundred lost to errors. The gate decides
as it does in the product, look after look, with a budget. Beside it stands the usual gate: run each
task once on both sides and compare the two means.

Bars: at each effect at most α of all requests get a wrong `better` or `regressed`, and no gate
spends more than its budget.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor

from benchmarks.figures import Figure
from orchestrator.gates.policy import Policy
from tests.gates.truth import Truth, simulate
from training.jobs.process import die_with

EFFECTS = (0.0, 0.05, -0.05, 0.1)
BUDGETS = (400, 1600)


def run(words: Sequence[str] = ()) -> Iterator[Figure]:
    options = argparse.ArgumentParser(prog="gate")
    options.add_argument("--requests", type=int, default=400)
    options.add_argument("--tasks", type=int, default=40)
    options.add_argument("--rollouts", type=int, nargs="*", default=list(BUDGETS))
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--processes", type=int, default=2)
    asked = options.parse_args(list(words))
    with ProcessPoolExecutor(
        asked.processes, initializer=die_with, initargs=(os.getpid(),)
    ) as pool:
        for rollouts in asked.rollouts:
            policy = Policy(rollouts=rollouts)
            waiting = [
                pool.submit(
                    simulate,
                    effect,
                    n=asked.requests,
                    policy=policy,
                    tasks=asked.tasks,
                    seed=asked.seed,
                )
                for effect in EFFECTS
            ]
            for future in waiting:
                yield from figures(future.result(), policy)


def figures(truth: Truth, policy: Policy) -> Iterator[Figure]:
    at = f"gate.effect_{truth.effect:+.2f}.budget_{policy.rollouts}"
    yield Figure(f"{at}.wrong_share", truth.wrong, policy.alpha)
    if truth.effect:
        yield Figure(f"{at}.right_share", truth.right, None)
    yield Figure(f"{at}.inconclusive_share", truth.verdicts["inconclusive"] / truth.n, None)
    yield Figure(f"{at}.ended_as_small_share", truth.small / truth.n, None)
    yield Figure(f"{at}.rollouts_mean", truth.mean_rollouts, policy.rollouts)
    yield Figure(f"{at}.threshold_gate_wrong_share", truth.plain_wrong, None)
