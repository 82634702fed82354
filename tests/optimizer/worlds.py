"""Worlds in which the truth is known, to see what a search makes of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optimizer.edits import Edit
from optimizer.search import Finished, Request, Row, Run, SearchConfig, next_action
from optimizer.tasks import TaskRef
from tests.optimizer.build import add, say

FAMILIES = ("lines", "first", "lookup", "sums", "errors")
RULES = [say(text, operator="instructions.pool", group="style") for text in ("rules", "format")]


@dataclass(frozen=True)
class TerminalWorld:
    """Like the terminal tasks and a small model:

    demonstrations do everything, rules on top hurt.
    """

    by_number: tuple[float, ...] = (0.02, 0.5, 0.65, 0.75, 0.75)
    """Pass rate by number of demonstrations."""
    rules_factor: float = 0.55
    spread: float = 0.15
    """Families differ by up to so much in either direction."""

    def rate(self, edits: tuple[Edit, ...], family: str) -> float:
        n = sum(edit.is_demonstration for edit in edits)
        rate = self.by_number[min(n, len(self.by_number) - 1)]
        rate *= self.rules_factor if any(edit.group == "style" for edit in edits) else 1.0
        shift = self.spread * (FAMILIES.index(family) / 2 - 1) if rate > self.spread else 0.0
        return min(1.0, max(0.0, rate + shift))


@dataclass(frozen=True)
class NullWorld:
    """Nothing matters."""

    level: float = 0.4

    def rate(self, edits: tuple[Edit, ...], family: str) -> float:
        return self.level


@dataclass(frozen=True)
class AdditiveWorld:
    """Independent edits whose text begins with what they do: good, bad or nothing."""

    def rate(self, edits: tuple[Edit, ...], family: str) -> float:
        steps = {"good": 0.1, "bad": -0.1, "nothing": 0.0}
        rate = 0.4 + sum(steps[edit.content.split()[0]] for edit in edits)
        return min(1.0, max(0.0, rate))


def additive_edits(each: int = 4) -> tuple[Edit, ...]:
    return tuple(say(f"{kind} {i}") for kind in ("good", "bad", "nothing") for i in range(each))


def tasks(split: str, n: int) -> tuple[TaskRef, ...]:
    return tuple(TaskRef(f"{split}-{i:04d}", FAMILIES[i % len(FAMILIES)]) for i in range(1, n + 1))


def config(**changes: Any) -> SearchConfig:
    values: dict[str, Any] = {
        "edits": (*(add(f"{i:04d}") for i in range(1, 9)), *RULES),
        "train": tasks("train", 120),
        "select": tasks("select", 60),
    }
    return SearchConfig(**(values | changes))


def simulate(
    subject: SearchConfig,
    world: Any,
    seed: int,
    *,
    lose: Callable[[Request], bool] = lambda request: False,
) -> tuple[Finished, list[Row]]:
    """Runs a search to its end in a world; `lose` picks the rollouts that error."""
    families = {task.key: task.stratum for task in (*subject.train, *subject.select)}
    rows: list[Row] = []
    while True:
        action = next_action(subject, rows)
        if not isinstance(action, Run):
            return action, rows
        for request in action.requests:
            rows.append(result(subject, world, seed, request, families[request.task], lose))


def result(
    subject: SearchConfig,
    world: Any,
    seed: int,
    request: Request,
    family: str,
    lose: Callable[[Request], bool] = lambda request: False,
) -> Row:
    score = None
    if not lose(request):
        rate = world.rate(tuple(subject.edits[i] for i in request.bundle), family)
        # Rollouts of both sides of a pair are independent, as with sampled tokens.
        draw = random.Random(f"{seed}/{request.candidate}/{request.task}/{request.replicate}")
        score = float(draw.random() < rate)
    return Row(*request.key, score)
