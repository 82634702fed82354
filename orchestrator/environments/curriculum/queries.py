"""What pages read of curricula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from orchestrator.environments.curriculum.beta import Beta
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


@dataclass(frozen=True)
class EstimateTable:
    rows: Sequence[EstimateRow]
    n_rows: int
    """With those that were cut off."""


def estimate_table(
    curriculum: Curriculum, *, by: str = "task", sort: str = "", limit: int | None = None
) -> EstimateTable:
    """Of each task, or pooled by group. `sort`: one of `SORTS`, `-` before it for descending.

    Intervals, which are the work, are computed for the rows that are given.
    """
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
        lines = [_line(name, m, pooled[name], stored) for name, m in groups.items()]
    else:
        lines = [_line(view.key, [view], view, stored) for view in views]
    chosen = _sorted(lines, sort or "-share")[:limit]
    return EstimateTable([_row(line) for line in chosen], len(lines))


@dataclass(frozen=True)
class _Line:
    """A row before its interval is computed; fields as there."""

    name: str
    group: str
    tasks: int
    posterior: Beta
    rate: float
    signal: float
    share: float
    cost: float | None
    draws: int
    rollouts: int


def _line(
    name: str, members: Sequence[Weighed], of: Weighed, stored: dict[str, TaskEstimate]
) -> _Line:
    found = [stored[m.key] for m in members if m.key in stored]
    costs = [e.cost for e in found if e.cost > 0]
    return _Line(
        name=name or "(none)",
        group=of.group,
        tasks=len(members),
        posterior=of.posterior,
        rate=of.posterior.mean,
        signal=math.fsum(m.signal for m in members) / len(members),
        share=math.fsum(m.probability for m in members),
        cost=math.fsum(costs) / len(costs) if costs else None,
        draws=sum(e.n_draws for e in found),
        rollouts=sum(e.n_rollouts for e in found),
    )


def _row(line: _Line) -> EstimateRow:
    low, high = line.posterior.interval()
    values = {f.name: getattr(line, f.name) for f in fields(line) if f.name != "posterior"}
    return EstimateRow(low=low, high=high, **values)


def _sorted(rows: list[_Line], sort: str) -> list[_Line]:
    name = sort.removeprefix("-")
    if name not in SORTS:
        name, sort = "share", "-share"

    def key(row: _Line) -> tuple[bool, object]:
        value = getattr(row, name)
        return (value is None, value if value is not None else 0)

    # By name within equal values, whichever way these are sorted.
    rows = sorted(rows, key=lambda row: row.name)
    return sorted(rows, key=key, reverse=sort.startswith("-"))
