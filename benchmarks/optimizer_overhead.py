"""What the optimiser itself costs: one refit, and a whole search by replay, in CPU time.

The search is played as the product runs it: asked anew from its start after every wave, with
rollouts that cost nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence

from benchmarks.figures import Figure
from optimizer.edits import Edit, Op
from optimizer.engines.contract import Row
from optimizer.engines.factorial.planning import Observation, fitted, next_wave, with_leaders
from optimizer.engines.factorial.pool import Pool
from optimizer.search_plan import Finished, NeedEdits, SearchPlan, next_step
from optimizer.tasks import TaskRef

EDITS, ROLLOUTS, TASKS = 14, 1000, 60
REFIT_BAR_MS, OVERHEAD_BAR_MS = 50.0, 5.0
SEARCH_ROLLOUTS, CERTIFY_PAIRS = 450, 75


def run() -> Iterator[Figure]:
    yield Figure("optimizer_overhead.refit_ms", refit_ms(), REFIT_BAR_MS)
    yield Figure("optimizer_overhead.per_rollout_ms", per_rollout_ms(), OVERHEAD_BAR_MS)


def edits() -> tuple[Edit, ...]:
    return tuple(
        Edit(Op.APPEND, "instructions.md", content=f"rule {i}", support=2) for i in range(EDITS)
    )


def refit_ms() -> float:
    """The fastest of five: the others were interrupted. With pairs of leaders, as in a search."""
    draw = random.Random(1)
    seen = tuple(
        Observation(
            tuple(i for i in range(EDITS) if draw.random() < 0.5),
            f"task-{draw.randrange(TASKS)}",
            float(draw.random() < 0.5),
        )
        for _ in range(ROLLOUTS)
    )
    pool = with_leaders(Pool(edits()), seen, 6)
    times = []
    for _ in range(5):
        fitted.cache_clear()
        began = time.process_time()
        fitted(pool, seen)
        times.append(time.process_time() - began)
    return 1000 * min(times)


def per_rollout_ms() -> float:
    for remembered in (fitted, with_leaders, next_wave):
        remembered.cache_clear()
    plan = SearchPlan(
        train=tuple(TaskRef(f"train/{i}") for i in range(TASKS)),
        select=tuple(TaskRef(f"select/{i}") for i in range(40)),
        search_rollouts=SEARCH_ROLLOUTS,
        certify_pairs=CERTIFY_PAIRS,
        to_the_end=True,
    )
    draw = random.Random(2)
    rows: list[Row] = []
    rounds: dict[int, Sequence[Edit]] = {}
    spent = 0.0
    while True:
        began = time.process_time()
        step = next_step(plan, rows, rounds)
        spent += time.process_time() - began
        if isinstance(step, Finished):
            return 1000 * spent / len(rows)
        if isinstance(step, NeedEdits):
            rounds[step.ask.round] = edits()
        else:
            rows += [
                Row(*request.key, float(draw.random() < 0.3 + 0.03 * len(request.candidate.edits)))
                for request in step.requests
            ]
