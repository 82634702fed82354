"""Which lambda is better, from the held-out scores of a sweep. Pure.

Each value is held against the first one on the same seeds and tasks. The interval is the pigeonhole
bootstrap: seeds and tasks are drawn anew, both with replacement, since a score depends on either;
it errs towards being too wide (Owen 2007, "The pigeonhole bootstrap"). Its level is shared out
among the values that are compared. With a single seed nothing is called better: how much two seeds
of the same training differ is then unknown.

The scores are those by which the steps were chosen, so every value looks better than it is, by
about the same: differences are to be believed, the means are not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ALPHA = 0.05
RESAMPLES = 4_000
SEED = 20240117
MIN_TASKS = 4

Scores = Mapping[float, Mapping[int, Mapping[str, float]]]
"""Lambda, then seed, then task: the held-out score of the chosen weights."""


@dataclass(frozen=True)
class Compared:
    """One value of lambda against the first."""

    value: float
    mean: float | None
    """Over seeds and tasks."""
    difference: float | None
    low: float | None
    high: float | None
    seeds: int
    """That both sides have."""
    seeds_ahead: int
    tasks: int
    word: str
    """reference, better, regressed, inconclusive or infrastructure."""


@dataclass(frozen=True)
class Verdict:
    """Of the sweep as a whole."""

    word: str
    """better, inconclusive or infrastructure."""
    best: float | None
    """The value that is shown better, if there is one."""
    sentence: str
    compared: tuple[Compared, ...]


def judge(scores: Scores, values: Sequence[float]) -> Verdict:
    """`values` in order; the first is the baseline. A job without scores is missing in `scores`."""
    base = values[0]
    level = ALPHA / max(1, len(values) - 1)
    compared = [_reference(base, scores.get(base, {}))]
    compared += [_against(value, scores, base, level) for value in values[1:]]
    better = [each for each in compared if each.word == "better"]
    if better:
        best = max(better, key=lambda each: each.difference or 0.0)
        sentence = (
            f"λ {best.value:g} is better than λ {base:g} by {_points(best.difference)} points "
            f"[{_points(best.low)}, {_points(best.high)}] on held-out tasks, {best.seeds} seeds."
        )
        return Verdict("better", best.value, sentence, tuple(compared))
    usable = [each for each in compared[1:] if each.difference is not None]
    if not usable:
        sentence = f"No value has held-out scores on the seeds of λ {base:g}: nothing is compared."
        return Verdict("infrastructure", None, sentence, tuple(compared))
    most = max(usable, key=lambda each: each.difference or 0.0)
    lost = [each for each in usable if each.word == "regressed"]
    if len(lost) == len(usable):
        sentence = f"Every value is worse than λ {base:g} on held-out tasks."
        return Verdict("better", base, sentence, tuple(compared))
    if most.seeds < 2:
        why = "one seed cannot tell a value from the luck of a training; run at least two."
    else:
        why = f"{most.seeds} seeds and {most.tasks} tasks do not settle it."
    sentence = (
        f"Not settled. The most is λ {most.value:g}, {_points(most.difference)} points "
        f"[{_points(most.low)}, {_points(most.high)}] against λ {base:g}; {why}"
    )
    return Verdict("inconclusive", None, sentence, tuple(compared))


def _reference(value: float, by_seed: Mapping[int, Mapping[str, float]]) -> Compared:
    means = [score for tasks in by_seed.values() for score in tasks.values()]
    word = "reference" if means else "infrastructure"
    tasks = max((len(each) for each in by_seed.values()), default=0)
    return Compared(value, _mean(means), None, None, None, len(by_seed), 0, tasks, word)


def _against(value: float, scores: Scores, base: float, level: float) -> Compared:
    mine, theirs = scores.get(value, {}), scores.get(base, {})
    seeds = sorted(mine.keys() & theirs.keys())
    shared = [mine[seed].keys() & theirs[seed].keys() for seed in seeds]
    tasks = sorted(set.intersection(*shared)) if shared else []
    mean = _mean([score for by_task in mine.values() for score in by_task.values()])
    if not tasks:
        none = None
        return Compared(value, mean, none, none, none, len(seeds), 0, 0, "infrastructure")
    table = [[mine[seed][task] - theirs[seed][task] for task in tasks] for seed in seeds]
    difference = _mean([d for row in table for d in row])
    low, high = interval(table, level)
    ahead = sum(math.fsum(row) > 0 for row in table)
    word = "inconclusive"
    if len(seeds) >= 2 and len(tasks) >= MIN_TASKS:
        if low > 0:
            word = "better"
        elif high < 0:
            word = "regressed"
    return Compared(value, mean, difference, low, high, len(seeds), ahead, len(tasks), word)


def interval(table_S_T: Sequence[Sequence[float]], level: float) -> tuple[float, float]:
    """Of the mean of seeds by tasks, central at 1 - `level`."""
    draw = random.Random(SEED)
    seeds, tasks = len(table_S_T), len(table_S_T[0])
    means = []
    for _ in range(RESAMPLES):
        rows = draw.choices(range(seeds), k=seeds)
        columns = draw.choices(range(tasks), k=tasks)
        total = math.fsum(table_S_T[row][column] for row in rows for column in columns)
        means.append(total / (seeds * tasks))
    means.sort()
    at = max(0, math.ceil(level / 2 * RESAMPLES) - 1)
    return means[at], means[RESAMPLES - 1 - at]


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _points(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f}".replace("-", "−")
