"""What the cells came to: figures of one training, the table over seeds, and what it shows. Pure.

A figure is a mean over seeds with its standard deviation. Differences to GRPO are paired by seed,
because two cells of one seed begin with the same weights, tasks and luck. Whether more is solved is
judged as in a sweep (`trainings.sweep_verdict`): seeds and tasks are drawn anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import stdev
from typing import Any

from orchestrator.trainings.sweep_verdict import Compared, judge

Line = Mapping[str, Any]
CE_FALLS_BY = 0.1
"""Share of the first surprise; a smaller fall is called none."""


def measured(events: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """From the events of a trainer: curves, and shares over all steps."""
    listed = list(events)
    steps = [event for event in listed if event["kind"] == "step"]
    evaluations = [event for event in listed if event["kind"] == "evaluated"]
    groups = sum(each["groups"] for each in steps)
    flat = sum(each["groups_without_spread"] for each in steps)
    return {
        "select": [[each["step"], each["mean"]] for each in evaluations],
        "pool_ce": [[each["step"], each.get("pool_ce")] for each in evaluations],
        "reward": [[each["step"], each["reward_mean"]] for each in steps],
        "train_ce": [[each["step"], each["world_ce_selected_per_token"]] for each in steps],
        "zero_advantage_share": flat / groups if groups else None,
        "update_s": round(sum(each["update_s"] for each in steps), 1),
    }


def observation_share(rows: Iterable[Mapping[str, Any]]) -> float | None:
    """Of the tokens that ECHO trains on: the environment's, after the first action."""
    said = acted = 0
    for row in rows:
        kinds = row["kinds"]
        said += kinds.count("env_output")
        acted += kinds.count("action")
    return said / (said + acted) if said + acted else None


@dataclass(frozen=True)
class Figure:
    """Mean over seeds; the standard deviation is None for fewer than two."""

    mean: float | None
    sd: float | None
    n: int

    def __str__(self) -> str:
        if self.mean is None:
            return "–"
        return f"{self.mean:.3f}" if self.sd is None else f"{self.mean:.3f} ± {self.sd:.3f}"


def figure(values: Iterable[float | None]) -> Figure:
    """Values that are None or not finite are left out and not counted."""
    kept = [value for value in values if value is not None and math.isfinite(value)]
    if not kept:
        return Figure(None, None, 0)
    mean = math.fsum(kept) / len(kept)
    return Figure(mean, stdev(kept) if len(kept) > 1 else None, len(kept))


@dataclass(frozen=True)
class Row:
    """One lambda."""

    value: float
    seeds: tuple[int, ...]
    base_test: Figure
    """Of the untrained weights; the same tasks."""
    test: Figure
    """pass@1 on the split `test`, greedy, by the weights that `select` chose."""
    compared: Compared | None
    """Against λ = 0."""
    first_ce: Figure
    """Nats per token of the environment in the author's transcripts, before training."""
    last_ce: Figure
    steps_to_best: Figure
    """First evaluated step with at least GRPO's best on `select`; seeds that never get there are
    left out, and counted in `never`."""
    never: int
    zero_advantage: Figure
    observation: Figure


@dataclass(frozen=True)
class Summary:
    """By lambda, ascending."""

    rows: tuple[Row, ...]
    size: Mapping[str, Any]

    def row(self, value: float) -> Row | None:
        return next((row for row in self.rows if row.value == value), None)


def summary(lines: Sequence[Line]) -> Summary:
    """Of results of one size."""
    values = sorted({float(line["lambda"]) for line in lines})
    scores: dict[float, dict[int, dict[str, float]]] = {}
    for line in lines:
        known = {task: value for task, value in line["test"].items() if value is not None}
        scores.setdefault(float(line["lambda"]), {})[int(line["seed"])] = known
    compared = {}
    if 0.0 in scores:
        verdict = judge(scores, values)
        compared = {each.value: each for each in verdict.compared if each.value != 0.0}
    goals = {int(line["seed"]): _best(line) for line in lines if float(line["lambda"]) == 0.0}
    rows = tuple(
        _row([line for line in lines if float(line["lambda"]) == value], value, compared, goals)
        for value in values
    )
    return Summary(rows, lines[0]["size"])


def _row(
    lines: Sequence[Line],
    value: float,
    compared: Mapping[float, Compared],
    goals: Mapping[int, float | None],
) -> Row:
    reached = [_reached(line, goals.get(int(line["seed"]))) for line in lines]
    has_goal = [line for line in lines if goals.get(int(line["seed"])) is not None]
    found = [step for step in reached if step is not None]
    return Row(
        value=value,
        seeds=tuple(sorted(int(line["seed"]) for line in lines)),
        base_test=figure(_mean(line["base_test"].values()) for line in lines),
        test=figure(_mean(line["test"].values()) for line in lines),
        compared=compared.get(value),
        first_ce=figure(line["pool_ce"][0][1] for line in lines),
        last_ce=figure(line["pool_ce"][-1][1] for line in lines),
        steps_to_best=figure(float(step) for step in found),
        never=len(has_goal) - len(found),
        zero_advantage=figure(line["zero_advantage_share"] for line in lines),
        observation=figure(line["observation_share"] for line in lines),
    )


def _best(line: Line) -> float | None:
    scores = [mean for step, mean in line["select"] if step > 0 and mean is not None]
    return max(scores, default=None)


def _reached(line: Line, goal: float | None) -> int | None:
    if goal is None:
        return None
    for step, mean in line["select"]:
        if step > 0 and mean is not None and mean >= goal:
            return int(step)
    return None


def _mean(values: Iterable[float | None]) -> float | None:
    return figure(values).mean


def table(found: Summary) -> list[list[str]]:
    """Head and one row per lambda, as texts."""
    head = ["λ", "seeds", "untrained", "pass@1", "less GRPO", "CE before", "CE after"]
    head += ["steps to best", "zero advantage", "observations"]
    return [head, *(_texts(row) for row in found.rows)]


def _texts(row: Row) -> list[str]:
    never = f" ({row.never} never)" if row.never else ""
    return [
        f"{row.value:g}",
        str(len(row.seeds)),
        str(row.base_test),
        str(row.test),
        _difference(row.compared),
        str(row.first_ce),
        str(row.last_ce),
        ("–" if row.steps_to_best.mean is None else f"{row.steps_to_best.mean:.1f}") + never,
        str(row.zero_advantage),
        str(row.observation),
    ]


def _difference(compared: Compared | None) -> str:
    if compared is None or compared.difference is None:
        return "–"
    low, high = compared.low or 0.0, compared.high or 0.0
    return f"{compared.difference:+.3f} [{low:+.3f}, {high:+.3f}]"


def sentences(found: Summary) -> list[str]:
    """What was seen of the paper's claims at this size, in plain words."""
    said = []
    grpo = found.row(0.0)
    if grpo is not None:
        said.append(f"GRPO alone: {_ce_sentence(grpo)}")
    for row in found.rows:
        if row.value == 0.0:
            continue
        said.append(f"λ {row.value:g}: {_ce_sentence(row)}")
        if row.compared is not None and row.compared.difference is not None:
            word = {
                "better": "more is solved than with GRPO",
                "regressed": "less is solved than with GRPO",
            }.get(row.compared.word, "whether more is solved than with GRPO is not settled")
            said.append(
                f"λ {row.value:g}: {word}: {_difference(row.compared)}, "
                f"{_seeds(row.compared.seeds)} and {row.compared.tasks} tasks."
            )
    return said


def _ce_sentence(row: Row) -> str:
    before, after = row.first_ce.mean, row.last_ce.mean
    if before is None or after is None:
        return "the surprise at the environment was not measured."
    change = (after - before) / before
    word = "falls" if change <= -CE_FALLS_BY else "rises" if change >= CE_FALLS_BY else "stays"
    return (
        f"the surprise at the environment {word}: {before:.2f} to {after:.2f} nats a token "
        f"({change:+.0%}), {_seeds(row.last_ce.n)}."
    )


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
