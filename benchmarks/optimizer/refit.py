"""How long one refit of the factorial model takes: 14 edits, 1,000 rollouts, pairs of leaders."""

from __future__ import annotations

import random
import time

from benchmarks.figures import Figure
from optimizer.edits import Edit, Op
from optimizer.engines.factorial.engine import FactorialSettings
from optimizer.engines.factorial.pool import NOISE_VARIANCE, TASK_VARIANCE, Pool
from optimizer.gaussian import Row, fit
from optimizer.harness import INSTRUCTIONS

EDITS, ROLLOUTS, TASKS = 14, 1000, 60
BAR_MS = 50.0
TRIES = 5


def refit() -> Figure:
    edits = [Edit(op=Op.APPEND, component=INSTRUCTIONS, content=f"Rule {i}.") for i in range(EDITS)]
    pool = Pool(tuple(edits), leaders=tuple(range(FactorialSettings().leaders)))
    draw = random.Random(1)
    rows = []
    for i in range(ROLLOUTS):
        bundle = tuple(k for k in range(EDITS) if draw.random() < 0.5)
        rows.append(Row(pool.columns(bundle), f"task {i % TASKS}", float(draw.random() < 0.5)))
    return Figure("optimizer.refit_ms", min(_once(pool, rows) for _ in range(TRIES)), BAR_MS)


def _once(pool: Pool, rows: list[Row]) -> float:
    """Processor time, ms: other processes on the machine do not count."""
    began = time.process_time()
    fit(rows, pool.prior_variance, group_variance=TASK_VARIANCE, noise=NOISE_VARIANCE)
    return 1000.0 * (time.process_time() - began)
