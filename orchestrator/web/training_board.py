"""The charts of a training job: geometry, marks, and the board in one sentence.

What is healthy is `training.health`; here are its charts drawn. A long run is thinned for drawing
and keeps the least and the most of each stretch; a value that is not finite stays a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.web.figures import CHART, Frame, LineChart, line_chart
from training.curves import joined, series
from training.health import BOARD, Chart, Judged, Mark, sentence
from training.thinning import is_finite, thinned

MOST_POINTS = 120
_ICONS = {Mark.GREEN: "check", Mark.AMBER: "alert", Mark.RED: "cross", Mark.GREY: "clock"}


@dataclass(frozen=True)
class Dot:
    """A step on a chart, to be clicked."""

    x: float
    y: float
    step: int
    label: str


@dataclass(frozen=True)
class BoardChart:
    chart: Chart
    judged: Judged
    line: LineChart
    dots: Sequence[Dot]
    gaps: int
    """Values that are missing or not finite."""

    @property
    def icon(self) -> str:
        return _ICONS[self.judged.mark]


@dataclass(frozen=True)
class Board:
    charts: Sequence[BoardChart]
    empty: Sequence[Chart]
    """Without a value so far."""
    verdict: Judged
    steps: Sequence[Mapping[str, Any]]

    @property
    def icon(self) -> str:
        return _ICONS[self.verdict.mark]


def board(
    steps: Sequence[Mapping[str, Any]], evaluations: Sequence[Mapping[str, Any]], total: int
) -> Board | None:
    """None before the first step or evaluation."""
    rows = joined(steps, evaluations)
    if not rows:
        return None
    charts: list[BoardChart] = []
    empty: list[Chart] = []
    for chart in BOARD:
        made = _made(chart, rows, steps, total)
        if made is None:
            empty.append(chart)
        else:
            charts.append(made)
    verdict = sentence([(each.chart, each.judged) for each in charts])
    return Board(charts, empty, verdict, steps)


def _made(
    chart: Chart,
    rows: Sequence[Mapping[str, Any]],
    steps: Sequence[Mapping[str, Any]],
    total: int,
) -> BoardChart | None:
    pairs = series(chart, rows)
    finite = [value for _, value in pairs if value is not None and is_finite(value)]
    if not finite:
        return None
    gaps = len(pairs) - len(finite)
    pairs = thinned(pairs, MOST_POINTS)
    line = line_chart(
        [step for step, _ in pairs],
        [value for _, value in pairs],
        top=chart.top,
        total_steps=total,
        frame=_frame(),
    )
    drawn = [(step, value) for step, value in pairs if value is not None and is_finite(value)]
    dots = [
        Dot(x, y, step, f"step {step}: {value:.4g}")
        for (x, y), (step, value) in zip(line.dots, drawn, strict=True)
    ]
    return BoardChart(chart, chart.judge(finite, steps), line, dots, gaps)


def _frame() -> Frame:
    return CHART
