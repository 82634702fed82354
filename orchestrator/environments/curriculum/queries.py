"""What pages read of curricula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.environments.curriculum.samplers import SamplerSettings, Weighed, weighed
from orchestrator.environments.curriculum.store import known_tasks
from orchestrator.environments.models import Curriculum, CurriculumDraw, TaskEstimate


@dataclass(frozen=True)
class EstimateRow:
    """A task, or a group of tasks, as a sampler sees it."""

    name: str
    group: str
    tasks: int
    rate: float
    low: float
    high: float
    """Of the central 90 % of the rate's distribution."""
    signal: float
    """Chance that a group of rollouts does not end all alike, 0 to 1; mean over a group's tasks."""
    share: float
    """Of draws that `signal` gives it."""
    cost: float | None
    """Mean of one rollout, in tokens; None: unknown."""
    draws: int
    rollouts: int


SORTS = ("name", "rate", "signal", "share", "cost", "draws", "rollouts")


def curricula_of(version_id: int) -> Sequence[Curriculum]:
    """The newest first."""
    return list(Curriculum.objects.filter(version_id=version_id).order_by("-id")[:50])


def draws_of(curriculum: Curriculum, *, limit: int = 12) -> Sequence[CurriculumDraw]:
    """The newest first."""
    return list(curriculum.draws.order_by("-step")[:limit])


def estimate_rows(curriculum: Curriculum, *, by: str = "task", sort: str = "") -> list[EstimateRow]:
    """Of each task, or pooled by group. `sort`: one of `SORTS`, `-` before it for descending."""
    settings = SamplerSettings.from_json(curriculum.settings)
    views = weighed(known_tasks(curriculum), settings)
    stored = {
        e.task.key: e
        for e in TaskEstimate.objects.filter(curriculum=curriculum).select_related("task")
    }
    if by == "group":
        groups: dict[str, list[Weighed]] = {}
        for view in views:
            groups.setdefault(view.group, []).append(view)
        pooled = {
            w.group: w
            for w in weighed(
                known_tasks(curriculum), SamplerSettings(**{**settings.as_json(), "by": "group"})
            )
        }
        rows = [_row(name, m, pooled[name], stored) for name, m in groups.items()]
    else:
        rows = [_row(view.key, [view], view, stored) for view in views]
    return _sorted(rows, sort or "-share")


def _row(
    name: str, members: Sequence[Weighed], of: Weighed, stored: dict[str, TaskEstimate]
) -> EstimateRow:
    low, high = of.posterior.interval()
    found = [stored[m.key] for m in members if m.key in stored]
    costs = [e.cost for e in found if e.cost > 0]
    return EstimateRow(
        name=name or "(none)",
        group=of.group,
        tasks=len(members),
        rate=of.posterior.mean,
        low=low,
        high=high,
        signal=math.fsum(m.signal for m in members) / len(members),
        share=math.fsum(m.probability for m in members),
        cost=math.fsum(costs) / len(costs) if costs else None,
        draws=sum(e.n_draws for e in found),
        rollouts=sum(e.n_rollouts for e in found),
    )


def _sorted(rows: list[EstimateRow], sort: str) -> list[EstimateRow]:
    name = sort.removeprefix("-")
    if name not in SORTS:
        name, sort = "share", "-share"

    def key(row: EstimateRow) -> tuple[bool, object]:
        value = getattr(row, name)
        return (value is None, value if value is not None else 0)

    # By name within equal values, whichever way these are sorted.
    rows = sorted(rows, key=lambda row: row.name)
    return sorted(rows, key=key, reverse=sort.startswith("-"))
