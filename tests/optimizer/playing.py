"""Plays a search plan to its end in a world whose truth is known, at one go or step by step."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from optimizer.edits import Edit
from optimizer.engines.contract import Request, Row
from optimizer.search_plan import Finished, NeedEdits, NeedRollouts, SearchPlan, next_step
from optimizer.tasks import TaskRef
from tests.optimizer.worlds import FAMILIES, tasks


def plan(**changes: Any) -> SearchPlan:
    values: dict[str, Any] = {
        "train": tasks("train", 60),
        "select": tasks("select", 40),
        "search_rollouts": 200,
        "certify_pairs": 40,
        "engine_settings": {"entry_support": 0},
    }
    return SearchPlan(**(values | changes))


@dataclass
class Played:
    finished: Finished
    rows: list[Row]
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    """Keys of all rollouts that were run, repeats included."""


def play(
    subject: SearchPlan,
    world: Any,
    edits: Sequence[Edit],
    seed: int = 0,
    *,
    lose: Callable[[Request], bool] = lambda request: False,
    cut: Callable[[int], int] = lambda n: n,
    usd: Callable[[Request], float] = lambda request: 0.0,
    met: Callable[[Request], Mapping[str, bool]] = lambda request: {},
) -> Played:
    """`cut(n)` says how many of n missing rollouts are run before the search is asked again, as
    after a kill; `lose` picks those that end without a score; `met` says which criteria are met.
    """
    rows: list[Row] = []
    rounds: dict[int, Sequence[Edit]] = {}
    asked: list[tuple[str, str, int]] = []
    while True:
        step = next_step(subject, rows, rounds)
        if isinstance(step, NeedEdits):
            rounds[step.ask.round] = edits
        elif isinstance(step, NeedRollouts):
            for request in step.requests[: max(1, cut(len(step.requests)))]:
                asked.append(request.key)
                row = result(subject, world, request, seed, lose, usd)
                rows.append(replace(row, met=met(request)))
        else:
            return Played(step, rows, asked)


def result(
    subject: SearchPlan,
    world: Any,
    request: Request,
    seed: int,
    lose: Callable[[Request], bool],
    usd: Callable[[Request], float],
) -> Row:
    family = families(subject)[request.task]
    score = None
    if not lose(request):
        rate = world.rate(request.candidate.edits, family)
        # Both sides of a pair are independent, as with sampled tokens.
        draw = random.Random(f"{seed}/{request.key}")
        score = float(draw.random() < rate)
    return Row(*request.key, score, cost_usd=usd(request), phase=request.phase)


def families(subject: SearchPlan) -> Mapping[str, str]:
    refs: tuple[TaskRef, ...] = (*subject.train, *subject.select)
    return {task.key: task.stratum for task in refs}


__all__ = ["FAMILIES", "Played", "plan", "play"]
