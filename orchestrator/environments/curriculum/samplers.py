"""Task samplers: `sequential`, `uniform`, `signal`. Pure.

Each draws `n` different tasks and depends on its arguments alone: the tasks, the seed, how many
draws were made before and, for `signal`, what is known of each task. There is no random state.

`signal` weighs a task by what a group of rollouts of it is expected to tell a learner that compares
them, 1 − pᴳ − (1−p)ᴳ (groups in which all score alike have no advantage: GRPO, arXiv 2402.03300,
section 4.1.2), per unit of what a rollout costs. A share ε is drawn evenly, so that no task is
forgotten, and what has become easy or possible is noticed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import islice
from typing import Any, Literal

from optimizer.tasks import TaskRef, passes
from orchestrator.environments.curriculum.beta import Beta

CHEAPEST = 0.1
"""A rollout counts as at least this share of the mean cost: one that fails at once is cheap too."""


@dataclass(frozen=True)
class SamplerSettings:
    """Of `signal`; the others use none of them."""

    group_size: int = 8
    """Rollouts of a task that are compared with one another."""
    decay: float = 0.95
    """What an old rollout still counts when one more has come; 0.95 remembers about twenty."""
    prior_strength: float = 2.0
    """Rollouts that the prior counts as. Its mean is the mean of the task's group."""
    floor: float = 0.1
    """Share that is drawn evenly."""
    by: Literal["task", "group"] = "task"
    """`group`: groups are weighed by what is known of them as a whole, their tasks drawn evenly."""

    def __post_init__(self) -> None:
        if self.group_size < 2:
            raise ValueError("group_size must be at least 2: one rollout compares with nothing")
        if not 0 < self.decay <= 1:
            raise ValueError("decay must be above 0 and at most 1")
        if self.prior_strength <= 0:
            raise ValueError("prior_strength must be above 0")
        if not 0 <= self.floor <= 1:
            raise ValueError("floor must be between 0 and 1")
        if self.by not in ("task", "group"):
            raise ValueError("by is task or group")

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> SamplerSettings:
        """`ValueError` that names an unknown or impossible field."""
        known = {field.name for field in fields(cls)}
        if unknown := set(value) - known:
            raise ValueError(f"unknown {sorted(unknown)[0]}; known: {', '.join(sorted(known))}")
        return cls(**value)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Known:
    """What is known of one task: decayed counts and the mean cost of a rollout (0: unknown)."""

    key: str
    group: str = ""
    successes: float = 0.0
    failures: float = 0.0
    cost: float = 0.0


@dataclass(frozen=True)
class Weighed:
    """One task with what `signal` thinks of it."""

    key: str
    group: str
    posterior: Beta
    signal: float
    cost: float
    """Relative to the mean, at least `CHEAPEST`."""
    probability: float
    """Of being the first task of a draw."""


def sequential(tasks: Sequence[Known], *, seed: int, n_draws: int, n: int) -> list[str]:
    """The next `n` in shuffled passes over all tasks, groups taking turns within a pass.

    At the turn of two passes a task could come twice in a draw; the next one takes its place.
    """
    order = passes([TaskRef(task.key, task.group) for task in tasks], seed, "train")
    chosen: dict[str, None] = {}
    for ref in islice(order, n_draws, None):
        if len(chosen) == min(n, len(tasks)):
            break
        chosen[ref.key] = None
    return list(chosen)


def uniform(tasks: Sequence[Known], *, seed: int, n_draws: int, n: int) -> list[str]:
    """`n` different tasks, each as likely."""
    return _without_replacement({task.key: 1.0 for task in tasks}, seed, n_draws, n)


def signal(
    tasks: Sequence[Known], settings: SamplerSettings, *, seed: int, n_draws: int, n: int
) -> list[str]:
    """`n` different tasks by the module's rule."""
    weights = {task.key: task.probability for task in weighed(tasks, settings)}
    return _without_replacement(weights, seed, n_draws, n)


def weighed(tasks: Sequence[Known], settings: SamplerSettings) -> list[Weighed]:
    """Posterior, signal and probability of each task, in the order given."""
    if not tasks:
        return []
    groups: dict[str, list[Known]] = {}
    for task in tasks:
        groups.setdefault(task.group, []).append(task)
    pooled = {name: _pooled(members) for name, members in groups.items()}
    by_group = settings.by == "group"
    costs = _relative_costs(tasks, groups, by_group=by_group)
    posteriors = {
        task.key: pooled[task.group] if by_group else _posterior(task, pooled[task.group], settings)
        for task in tasks
    }
    raw = {
        task.key: posteriors[task.key].signal(settings.group_size)
        / costs[task.key]
        / (len(groups[task.group]) if by_group else 1)
        for task in tasks
    }
    total = math.fsum(raw.values())
    even = 1.0 / len(tasks)
    return [
        Weighed(
            key=task.key,
            group=task.group,
            posterior=posteriors[task.key],
            signal=posteriors[task.key].signal(settings.group_size),
            cost=costs[task.key],
            probability=(
                (1 - settings.floor) * raw[task.key] / total + settings.floor * even
                if total > 0
                else even
            ),
        )
        for task in tasks
    ]


def _pooled(members: Sequence[Known]) -> Beta:
    """Of a whole group, with the prior of someone who knows nothing."""
    return Beta(
        1.0 + math.fsum(task.successes for task in members),
        1.0 + math.fsum(task.failures for task in members),
    )


def _posterior(task: Known, group: Beta, settings: SamplerSettings) -> Beta:
    strength = settings.prior_strength
    return Beta(task.successes + strength * group.mean, task.failures + strength * (1 - group.mean))


def _relative_costs(
    tasks: Sequence[Known], groups: Mapping[str, Sequence[Known]], *, by_group: bool
) -> dict[str, float]:
    """Cost of each task's rollouts in units of the mean; unknown ones cost their group's mean."""
    known = [task.cost for task in tasks if task.cost > 0]
    mean = math.fsum(known) / len(known) if known else 1.0
    of_group = {}
    for name, members in groups.items():
        costs = [task.cost for task in members if task.cost > 0]
        of_group[name] = math.fsum(costs) / len(costs) if costs else mean
    return {
        task.key: max(
            CHEAPEST,
            (of_group[task.group] if by_group or task.cost <= 0 else task.cost) / mean,
        )
        for task in tasks
    }


def _without_replacement(
    weights: Mapping[str, float], seed: int, n_draws: int, n: int
) -> list[str]:
    """Weighted draw of different keys: the largest u^(1/w), u a hash of seed, draw and key.

    Source: Efraimidis and Spirakis, Information Processing Letters 97 (2006), algorithm A. As u
    depends on the key, the order of the tasks does not matter. A weight of 0 comes last.
    """

    def rank(key: str) -> tuple[float, str]:
        weight = weights[key]
        u = _unit(seed, n_draws, key)
        return (math.log(u) / weight if weight > 0 else -math.inf, key)

    return sorted(weights, key=rank, reverse=True)[:n]


def _unit(*parts: object) -> float:
    """A number above 0 and below 1 from the parts' text."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return (int.from_bytes(digest[:8], "big") + 0.5) / 2**64
