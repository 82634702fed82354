"""From runs to figures: what each engine gained, against whom, and whether the bars are met."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from benchmarks.figures import Figure
from benchmarks.optimizer.engines import is_rival
from benchmarks.optimizer.results import Result
from benchmarks.optimizer.ruleworld import NULL, SETTINGS
from optimizer.statistics.paired import sign_test

WORSE = -0.005
"""A true gain below this is worse than the seed; less is the cost of a word too many."""
Runs = Mapping[tuple[str, str], Sequence[Result]]
"""By engine and cell, each ordered by seed."""


@dataclass(frozen=True)
class Line:
    """A figure without a bar."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    ok: bool = True

    def line(self) -> str:
        rounded = {
            key: round(value, 4) if isinstance(value, float) else value
            for key, value in self.values.items()
        }
        return json.dumps({"name": self.name, **rounded})


def by_cell(found: Iterable[tuple[str, str, Result]]) -> dict[tuple[str, str], list[Result]]:
    runs: dict[tuple[str, str], list[Result]] = {}
    for engine, cell, result in found:
        runs.setdefault((engine, cell), []).append(result)
    return {key: sorted(value, key=lambda r: int(r["seed"])) for key, value in runs.items()}


def summary(engine: str, cell: str, runs: Sequence[Result]) -> Line:
    gains = [run["gain"] for run in runs]
    optimism = [run["claimed"] - run["select_gain"] for run in runs]
    oracles = [run["oracle"] for run in runs if run["oracle"] is not None]
    reachable = mean(oracles) if len(oracles) == len(runs) else math.nan
    return Line(
        f"optimizer.{cell}.{engine}",
        {
            "worlds": len(runs),
            "gain": mean(gains),
            "gain_se": standard_error(gains),
            "share_of_oracle": mean(gains) / reachable if reachable > 0 else None,
            "worse_than_seed_rate": mean([gain < WORSE for gain in gains]),
            "claimed": mean([run["claimed"] for run in runs]),
            "optimism": mean(optimism),
            "optimism_se": standard_error(optimism),
            "claims_improved_rate": mean([run["is_improved"] for run in runs]),
            "used": max(run["used"] for run in runs),
            "budget": runs[0]["budget"],
            "cpu_s": mean([run["cpu_s"] for run in runs]),
        },
    )


@dataclass(frozen=True)
class Paired:
    """Our gains minus a rival's, world by world."""

    rival: str
    mean: float
    se: float
    wins: int
    losses: int
    ties: int
    p: float
    """One-sided exact sign test on the worlds that are not tied."""

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval of the mean."""
        return self.mean + 1.96 * self.se

    def line(self, cell: str, ours: str) -> Line:
        return Line(
            f"optimizer.{cell}.{ours}_minus_{self.rival}",
            {
                "mean": self.mean,
                "low": self.mean - 1.96 * self.se,
                "high": self.high,
                "wins": self.wins,
                "losses": self.losses,
                "ties": self.ties,
                "p": self.p,
            },
        )


def paired(ours: Sequence[Result], rival: str, theirs: Sequence[Result]) -> Paired:
    differences = [a["gain"] - b["gain"] for a, b in zip(ours, theirs, strict=True)]
    test = sign_test([Fraction(difference) for difference in differences])
    return Paired(
        rival,
        mean(differences),
        standard_error(differences),
        test.wins,
        test.losses,
        test.ties,
        test.one_sided,
    )


def best_rival(runs: Runs, cell: str, *, prefix: str = "") -> str | None:
    """The one with the highest mean gain there, chosen afterwards."""
    rivals = {
        engine: mean([run["gain"] for run in of])
        for (engine, at), of in runs.items()
        if at == cell and is_rival(engine) and engine.startswith(prefix)
    }
    return max(rivals, key=lambda name: rivals[name]) if rivals else None


def rule_world_bars(runs: Runs, ours: str) -> list[Figure]:
    """The bars that can be judged with what was run: all settings, or the null world, or both."""
    figures = [_over_budget(runs)]
    if all((ours, cell) in runs for cell in SETTINGS):
        mine = [runs[ours, cell] for cell in SETTINGS]
        rates = [mean([run["gain"] < WORSE for run in of]) for of in mine]
        biases = [mean([run["claimed"] - run["select_gain"] for run in of]) for of in mine]
        figures += [
            Figure("optimizer.claimed_minus_true_abs", abs(mean(biases)), 0.02),
            Figure("optimizer.worse_than_seed_rate", mean(rates), 0.05),
            Figure("optimizer.worse_than_seed_rate_of_worst_setting", max(rates), 0.05),
        ]
        rivals = [best_rival(runs, cell) for cell in SETTINGS]
        if all(rivals):
            pairs = [
                paired(of, rival, runs[rival, cell])
                for cell, of, rival in zip(SETTINGS, mine, rivals, strict=True)
                if rival is not None
            ]
            ahead = sum(pair.mean >= 0 for pair in pairs)
            clear = sum(pair.mean > 0 and pair.p < 0.05 for pair in pairs)
            figures += [
                Figure("optimizer.settings_not_below_better_rival", ahead, 6, is_floor=True),
                Figure("optimizer.settings_above_by_sign_test", clear, 5, is_floor=True),
            ]
    if (ours, NULL) in runs:
        claims = mean([run["is_improved"] for run in runs[ours, NULL]])
        figures.append(Figure("optimizer.null_false_improved_rate", claims, 0.05))
    return figures


def other_world_bars(runs: Runs, ours: str, cell: str) -> list[Figure]:
    """A world that others made: gepa's lead must be within the interval of the difference."""
    figures = [_over_budget(runs)]
    rival = best_rival(runs, cell, prefix="gepa")
    if rival is not None:
        pair = paired(runs[ours, cell], rival, runs[rival, cell])
        name = f"optimizer.{cell}.{ours}_minus_{rival}_high"
        figures.append(Figure(name, pair.high, 0.0, is_floor=True))
    return figures


def _over_budget(runs: Runs) -> Figure:
    over = max(run["used"] - run["budget"] for of in runs.values() for run in of)
    return Figure("optimizer.rollouts_over_budget", max(over, 0), 0)


def mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)


def standard_error(values: Sequence[float]) -> float:
    """NaN below two values."""
    if len(values) < 2:
        return math.nan
    return statistics.stdev(values) / math.sqrt(len(values))
