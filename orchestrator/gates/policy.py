"""What a gate was asked to decide, and how much it may spend on it. Pure.

A policy is fixed when the gate starts. From it and the number of tasks follow the looks at the data
and the share of α of each (`optimizer.statistics.looks`), before the first rollout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from optimizer.statistics.looks import Look, looks_at

MAX_ROLLOUTS = 20_000
MAX_LOOKS = 5
"""More cost power and save little."""
SCORE, REWARD = "score", "reward"
CRITERION = "criterion:"


class PolicyInvalid(ValueError):
    """`field` is the policy's; the message says what it accepts."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field, self.accepts = field, message


@dataclass(frozen=True)
class Policy:
    """Raises PolicyInvalid."""

    metric: str = SCORE
    """`score`, `reward`, or `criterion:` and the id of one."""
    margin: float = 0.0
    """Differences up to it are no news: better and regressed mean by more than this."""
    alpha: float = 0.05
    """The probability of a wrong better or regressed, both together, over all looks."""
    power: float = 0.8
    """With which a difference is to be found, where the gate says how much more it needs."""
    effect: float = 0.1
    """The smallest difference that matters: one that is shown to be smaller ends the gate."""
    rollouts: int = 400
    """At most, of both sides together."""
    usd: float | None = None
    """At most, as far as the cost of rollouts is known."""
    coverage: float = 0.8
    """Share of pairs with two scores below which nothing is decided."""
    required: tuple[str, ...] = ()
    """Ids of criteria that the candidate must meet in every rollout, whatever the baseline does."""
    task_floor: float | None = None
    """A mean that the candidate must reach on each task by itself, over its repeats."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("margin", 0.0, 0.5),
            ("alpha", 0.001, 0.2),
            ("power", 0.5, 0.99),
            ("effect", 0.005, 0.9),
            ("coverage", 0.5, 1.0),
        ):
            value = getattr(self, name)
            if not low <= value <= high:  # also false for NaN
                raise PolicyInvalid(name, f"accepts {low} to {high}, got {value}")
        if not self.effect > self.margin:
            raise PolicyInvalid(
                "effect", f"accepts more than the margin of {self.margin}, got {self.effect}"
            )
        if not 1 <= self.rollouts <= MAX_ROLLOUTS:
            raise PolicyInvalid("rollouts", f"accepts 1 to {MAX_ROLLOUTS:,}, got {self.rollouts}")
        if self.usd is not None and not 0.0 < self.usd < math.inf:
            raise PolicyInvalid("usd", f"accepts an amount above 0, got {self.usd}")
        if self.task_floor is not None and not 0.0 <= self.task_floor <= 1.0:
            raise PolicyInvalid("task_floor", f"accepts 0 to 1, got {self.task_floor}")
        if self.metric not in (SCORE, REWARD) and not self.metric.startswith(CRITERION):
            raise PolicyInvalid(
                "metric", f"accepts {SCORE}, {REWARD} or {CRITERION}ID, got {self.metric!r}"
            )

    @property
    def criterion(self) -> str | None:
        """The id of the criterion that is compared, where it is one."""
        return self.metric.removeprefix(CRITERION) if self.metric.startswith(CRITERION) else None

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "required": list(self.required)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Policy:
        """Raises PolicyInvalid, also for a name that is not known."""
        known = {field.name: field.default for field in fields(cls)}
        kept: dict[str, Any] = {}
        for name, value in told.items():
            if name not in known:
                raise PolicyInvalid(name, f"is unknown; a policy has {', '.join(known)}")
            kept[name] = _typed(name, value)
        return cls(**kept)


def _typed(name: str, value: Any) -> Any:
    if name == "metric":
        if isinstance(value, str):
            return value
        raise PolicyInvalid(name, f"accepts a text, got {value!r}")
    if name == "required":
        if isinstance(value, list | tuple) and all(isinstance(item, str) for item in value):
            return tuple(dict.fromkeys(value))
        raise PolicyInvalid(name, f"accepts a list of ids of criteria, got {value!r}")
    if value is None and name in ("usd", "task_floor"):
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyInvalid(name, f"accepts a number, got {value!r}")
    if name == "rollouts":
        if value != int(value):
            raise PolicyInvalid(name, f"accepts a whole number, got {value!r}")
        return int(value)
    return float(value)


@dataclass(frozen=True)
class Plan:
    """The looks of a gate over so many tasks."""

    tasks: int
    replicates: tuple[int, ...]
    """Of each task and side at each look, counted from the start."""
    looks: tuple[Look, ...]

    @property
    def rollouts(self) -> int:
        """At most, of both sides."""
        return 2 * self.tasks * self.replicates[-1]


def plan_for(policy: Policy, tasks: int) -> Plan:
    """Raises PolicyInvalid: with so many tasks and rollouts nothing could ever be decided."""
    each = policy.rollouts // (2 * tasks) if tasks else 0
    if each < 1:
        raise PolicyInvalid(
            "rollouts",
            f"{tasks:,} tasks on both sides take {2 * tasks:,} rollouts at least, and the budget "
            f"is {policy.rollouts:,}. Allow more rollouts, or name fewer tasks",
        )
    n = min(MAX_LOOKS, each)
    replicates = tuple(math.ceil(each * (i + 1) / n) for i in range(n))
    looks = looks_at(tuple(r / each for r in replicates), policy.alpha / 2)
    # With so few tasks not even a win on each of them would be beyond chance.
    needed = math.ceil(-math.log2(looks[-1].level))
    if tasks < needed:
        raise PolicyInvalid(
            "tasks",
            f"a decision at α {policy.alpha:g} in {n} {'look' if n == 1 else 'looks'} needs at "
            f"least {needed} tasks, whatever the number of rollouts; there are {tasks}. Add tasks",
        )
    return Plan(tasks, replicates, looks)
