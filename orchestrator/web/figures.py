"""Geometry of the drawn figures: the climb and the curves of training.

Pure: numbers in, coordinates out; templates turn them into SVG. A rung without a score has no
point, and what errored is a hatched mark on the axis, never a point at zero.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

MINUS = "\N{MINUS SIGN}"


class RungLike(Protocol):
    """What the figure needs of a rung (`orchestrator.climbs.models.Rung`)."""

    verdict: str
    state: str
    score: float | None
    score_low: float | None
    score_high: float | None
    n_scored: int
    n_errored: int
    progress: float


@dataclass(frozen=True)
class Frame:
    """Drawing area in user units; `left` … `bottom` are the edges of the plot inside it."""

    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int

    @property
    def verdict_y(self) -> int:
        """Line of the verdict; a narrow figure writes the interval on a line of its own."""
        return self.bottom + (69 if self.width > 400 else 86)

    @property
    def time_y(self) -> int:
        return self.verdict_y + 17

    @property
    def plot_height(self) -> int:
        return self.bottom - self.top

    def y(self, value: float) -> float:
        """Height of a score, 0 to 1; values outside are drawn at the edge."""
        clipped = min(1.0, max(0.0, value))
        return round(self.bottom - clipped * (self.bottom - self.top), 1)


WIDE = Frame(width=640, height=344, left=36, right=632, top=34, bottom=252)
NARROW = Frame(width=372, height=336, left=28, right=368, top=34, bottom=226)
MINI = Frame(width=260, height=96, left=12, right=248, top=14, bottom=84)


@dataclass(frozen=True)
class Point:
    index: int
    x: float
    y: float
    look: str
    """Measured: `reference`, `better`, `regressed`, `inconclusive` or `infrastructure`; else
    `running`, `pending` or `failed`."""
    is_measured: bool
    low_y: float | None
    high_y: float | None
    label_y: float
    """Where the score is written: above the interval."""
    errored: int


@dataclass(frozen=True)
class Segment:
    d: str
    look: str
    """`better`, `regressed`, `inconclusive` or `open` (towards a rung that has no score yet)."""


@dataclass(frozen=True)
class Tick:
    y: float
    label: str


@dataclass(frozen=True)
class ClimbFigure:
    frame: Frame
    ticks: Sequence[Tick]
    points: Sequence[Point]
    segments: Sequence[Segment]
    area: str
    contours: Sequence[str]
    """Paths below the trail, as height lines on a map."""
    column: float
    """Width of one rung's column."""
    summary: str
    """The figure in words."""


def climb_figure(rungs: Sequence[RungLike], names: Sequence[str], frame: Frame) -> ClimbFigure:
    """`names[i]` is what rung i is called in the summary."""
    column = (frame.right - frame.left) / max(1, len(rungs))
    points: list[Point] = []
    height = frame.y(0.0)
    for index, rung in enumerate(rungs):
        x = round(frame.left + column * (index + 0.5), 1)
        points.append(_point(index, x, rung, frame, height))
        if points[-1].is_measured:
            height = points[-1].y
    measured = [point for point in points if point.is_measured]
    return ClimbFigure(
        frame=frame,
        ticks=[
            Tick(frame.y(value), label)
            for value, label in ((0.0, "0"), (0.25, ".25"), (0.5, ".50"), (0.75, ".75"), (1.0, "1"))
        ],
        points=points,
        segments=_segments(points),
        area=_area(measured, frame.bottom),
        contours=[_scaled(measured, frame.bottom, share) for share in (0.8, 0.6, 0.4, 0.2)],
        column=round(column, 1),
        summary=_summary(rungs, names),
    )


def _point(index: int, x: float, rung: RungLike, frame: Frame, height: float) -> Point:
    if rung.score is None or not math.isfinite(rung.score):
        look = rung.state if rung.state in ("running", "failed") else "pending"
        if rung.verdict == "infrastructure":
            look = "failed"
        return Point(index, x, height, look, False, None, None, height - 16, rung.n_errored)
    y = frame.y(rung.score)
    low = None if rung.score_low is None else frame.y(rung.score_low)
    high = None if rung.score_high is None else frame.y(rung.score_high)
    return Point(
        index=index,
        x=x,
        y=y,
        look=rung.verdict or "reference",
        is_measured=True,
        low_y=low,
        high_y=high,
        label_y=round((high if high is not None else y - 6) - 9, 1),
        errored=rung.n_errored,
    )


def _curve(a: tuple[float, float], b: tuple[float, float]) -> str:
    """From a to b, level at both ends."""
    middle = round((a[0] + b[0]) / 2, 1)
    return f"C {middle} {a[1]} {middle} {b[1]} {b[0]} {b[1]}"


def _segments(points: Sequence[Point]) -> list[Segment]:
    segments: list[Segment] = []
    last: Point | None = None
    for point in points:
        if last is not None and (point.is_measured or point.look == "running"):
            look = point.look if point.is_measured else "open"
            path = f"M {last.x} {last.y} {_curve((last.x, last.y), (point.x, point.y))}"
            segments.append(Segment(path, look))
        if point.is_measured:
            last = point
    return segments


def _trail(points: Sequence[tuple[float, float]]) -> str:
    head = f"M {points[0][0]} {points[0][1]} "
    return head + " ".join(_curve(a, b) for a, b in itertools.pairwise(points))


def _area(points: Sequence[Point], bottom: int) -> str:
    if len(points) < 2:
        return ""
    trail = _trail([(point.x, point.y) for point in points])
    return f"{trail} L {points[-1].x} {bottom} L {points[0].x} {bottom} Z"


def _scaled(points: Sequence[Point], bottom: int, share: float) -> str:
    if len(points) < 2:
        return ""
    return _trail([(p.x, round(bottom - share * (bottom - p.y), 1)) for p in points])


def _summary(rungs: Sequence[RungLike], names: Sequence[str]) -> str:
    parts = []
    for rung, name in zip(rungs, names, strict=True):
        if rung.score is None:
            parts.append(f"{name}: {rung.verdict or rung.state}, no score")
            continue
        text = f"{name}: {rung.score:.2f}"
        if rung.score_low is not None and rung.score_high is not None:
            text += f", 95 % interval {rung.score_low:.2f} to {rung.score_high:.2f}"
        if rung.verdict:
            text += f", {rung.verdict}"
        parts.append(text)
    return "Score by rung. " + "; ".join(parts) if parts else "No rung yet."


@dataclass(frozen=True)
class LineChart:
    """One quantity over steps. A value that is missing or not finite leaves a gap and a mark."""

    frame: Frame
    ticks: Sequence[Tick]
    paths: Sequence[str]
    dots: Sequence[tuple[float, float]]
    gaps: Sequence[float]
    """x of the steps without a finite value."""
    first_label: str
    last_label: str
    last: tuple[float, float] | None
    last_value: str


CHART = Frame(width=420, height=150, left=38, right=408, top=14, bottom=122)


def line_chart(
    steps: Sequence[int],
    values: Sequence[float | None],
    *,
    top: float | None = None,
    total_steps: int = 0,
    frame: Frame = CHART,
) -> LineChart:
    """`top` fixes the upper end of the scale; without it that is a round number above the data."""
    finite = [v for v in values if v is not None and math.isfinite(v)]
    ceiling = top if top is not None else _round_up(max(finite, default=1.0))
    floor = min(0.0, min(finite, default=0.0))
    span = (ceiling - floor) or 1.0
    first = steps[0] if steps else 1
    last_step = max(total_steps, steps[-1] if steps else 1, first + 1)

    def x(step: int) -> float:
        return round(
            frame.left + (step - first) / (last_step - first) * (frame.right - frame.left), 1
        )

    def y(value: float) -> float:
        return frame.y((value - floor) / span)

    paths: list[str] = []
    dots: list[tuple[float, float]] = []
    gaps: list[float] = []
    stretch: list[tuple[float, float]] = []
    for step, value in zip(steps, values, strict=True):
        if value is None or not math.isfinite(value):
            gaps.append(x(step))
            _close(stretch, paths)
            stretch = []
            continue
        stretch.append((x(step), y(value)))
        dots.append(stretch[-1])
    _close(stretch, paths)
    return LineChart(
        frame=frame,
        ticks=[
            Tick(y(floor + span * share), _tick(floor + span * share)) for share in (0.0, 0.5, 1.0)
        ],
        paths=paths,
        dots=dots,
        gaps=gaps,
        first_label=str(first),
        last_label=str(last_step),
        last=dots[-1] if dots else None,
        last_value=_plain(finite[-1]) if finite else "",
    )


def _close(stretch: Sequence[tuple[float, float]], paths: list[str]) -> None:
    if len(stretch) > 1:
        paths.append("M " + " L ".join(f"{x} {y}" for x, y in stretch))


def _round_up(value: float) -> float:
    """The next round number: 1, 1.5, 2, 2.5, 3, 4, 5, 6 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        f * power
        for f in (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
        if f * power >= value - 1e-12
    )


def _plain(value: float) -> str:
    """Two decimals, or two digits where those would say 0.0 of something that is not."""
    text = f"{value:.2f}" if value == 0 or abs(value) >= 0.095 else f"{value:.2g}"
    return text.replace("-", MINUS)


def _tick(value: float) -> str:
    if 0 < abs(value) < 0.095:
        return f"{value:.2g}".replace("-", MINUS)
    return f"{value:.2f}".rstrip("0").rstrip(".").replace("-", MINUS) or "0"


@dataclass(frozen=True)
class Bar:
    """A part of a stacked bar, in per cent of its width."""

    look: str
    x: float
    width: float


def stacked(parts: Sequence[tuple[str, int]], total: int) -> list[Bar]:
    """Parts of `total`, in order; what is left over is not drawn."""
    bars: list[Bar] = []
    x = 0.0
    for look, amount in parts:
        width = 100.0 * amount / total if total else 0.0
        if width > 0:
            bars.append(Bar(look, round(x, 3), round(width, 3)))
        x += width
    return bars
