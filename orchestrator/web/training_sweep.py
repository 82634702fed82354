"""A sweep as its page shows it: a row per value of λ, with its jobs and an interval to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.trainings.curves import KEYS
from orchestrator.trainings.sweep_verdict import Compared, Verdict
from orchestrator.trainings.sweeps import lambda_of
from orchestrator.web.training_curves import MOST_SHOWN
from training.health import Chart
from training.models import Sweep, TrainingJob

WIDTH, MIDDLE = 240.0, 120.0
LEAST_SCALE = 0.1


@dataclass(frozen=True)
class SweepRow:
    compared: Compared
    jobs: Sequence[TrainingJob]
    bar: tuple[float, float, float] | None
    """Low, difference and high on a line of `WIDTH`, 0 in its middle."""


@dataclass(frozen=True)
class SweepView:
    verdict: Verdict
    rows: Sequence[SweepRow]
    done: int
    total: int
    scale: float
    """Points of score at either end of the line."""
    jobs: Sequence[TrainingJob]

    @property
    def has_steps(self) -> bool:
        return any(job.step for job in self.jobs)

    @property
    def job_ids(self) -> str:
        return ",".join(str(job.pk) for job in self.jobs[:MOST_SHOWN])

    @property
    def charts(self) -> Sequence[Chart]:
        return [KEYS[key] for key in ("held_out", "reward", "pool_ce")]


def sweep_rows(sweep: Sweep, verdict: Verdict) -> SweepView:
    jobs = list(sweep.jobs.order_by("id"))
    ends = [abs(end) for each in verdict.compared for end in (each.low, each.high) if end]
    scale = max([LEAST_SCALE, *ends])

    def at(value: float) -> float:
        return round(MIDDLE + value / scale * (MIDDLE - 8), 1)

    rows = []
    for each in verdict.compared:
        bar = None
        if each.low is not None and each.high is not None and each.difference is not None:
            bar = (at(each.low), at(each.difference), at(each.high))
        mine = [job for job in jobs if lambda_of(job) == each.value]
        rows.append(SweepRow(each, mine, bar))
    done = sum(job.has_ended for job in jobs)
    return SweepView(verdict, rows, done, len(jobs), round(scale, 2), jobs)
