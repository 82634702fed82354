"""Geometry of the figures of a search: candidates by score and price, and the course of a test.

Pure: numbers in, coordinates out; templates turn them into SVG. Frames are those of
`orchestrator.web.figures`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orchestrator.web.figures import MINUS, Frame

WIDE = Frame(width=640, height=330, left=46, right=628, top=18, bottom=286)
NARROW = Frame(width=360, height=300, left=40, right=352, top=16, bottom=256)
PRINTED_CURVE = Frame(width=720, height=280, left=52, right=700, top=18, bottom=236)
NARROW_CURVE = Frame(width=360, height=260, left=44, right=350, top=16, bottom=216)


@dataclass(frozen=True)
class Mark:
    """A place on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class PointIn:
    key: str
    name: str
    score: float
    price: float
    look: str
    """`seed`, `winner`, `rejected` or `other`."""


@dataclass(frozen=True)
class Spot:
    point: PointIn
    x: float
    y: float
    is_front: bool
    label: str
    anchor: str
    """`start` or `end`: on which side of the point there is room."""
    label_x: float


@dataclass(frozen=True)
class Pareto:
    frame: Frame
    x_marks: Sequence[Mark]
    y_marks: Sequence[Mark]
    spots: Sequence[Spot]
    front: str
    """Path along the candidates that nothing beats in both."""
    summary: str


def front_of(points: Sequence[PointIn]) -> list[bool]:
    """Whether no other point beats it in one of score and price and matches it in the other."""
    return [
        not any(
            other.score >= point.score
            and other.price <= point.price
            and (other.score > point.score or other.price < point.price)
            for other in points
        )
        for point in points
    ]


def pareto_figure(points: Sequence[PointIn], frame: Frame, *, price_name: str, show: str) -> Pareto:
    """`show` is the format of prices on the axis: `usd`, `tokens` or `s`."""
    on_front = front_of(points)
    y_marks, y_of = _axis([p.score for p in points], frame.bottom, frame.top, floor=0.0, top=1.0)
    x_marks, x_of = _axis([p.price for p in points], frame.left, frame.right, floor=0.0)
    spots = []
    for point, is_front in zip(points, on_front, strict=True):
        x, y = x_of(point.price), y_of(point.score)
        is_right = x > frame.left + 0.72 * (frame.right - frame.left)
        named = point.look in ("seed", "winner")
        spots.append(
            Spot(
                point=point,
                x=x,
                y=y,
                is_front=is_front,
                label=point.name if named else "",
                anchor="end" if is_right else "start",
                label_x=round(x + (-11 if is_right else 11), 1),
            )
        )
    ordered = sorted((s for s in spots if s.is_front), key=lambda s: (s.x, -s.y))
    return Pareto(
        frame=frame,
        x_marks=[Mark(x_of(v), _price(v, show)) for v in x_marks],
        y_marks=[Mark(y_of(v), _number(v)) for v in y_marks],
        # The named ones last, so that nothing covers them.
        spots=sorted(spots, key=lambda s: (s.point.look in ("seed", "winner"), s.is_front)),
        front=_staircase([(s.x, s.y) for s in ordered]),
        summary=_pareto_summary(points, on_front, price_name, show),
    )


def _staircase(points: Sequence[tuple[float, float]]) -> str:
    """Level until the next better one: between two candidates the cheaper is what one has."""
    if len(points) < 2:
        return ""
    path = f"M {points[0][0]} {points[0][1]}"
    for x, y in points[1:]:
        path += f" H {x} V {y}"
    return path


def _pareto_summary(
    points: Sequence[PointIn], on_front: Sequence[bool], price_name: str, show: str
) -> str:
    best = [
        f"{p.name}: {p.score:.2f} at {_price(p.price, show)}"
        for p, is_front in sorted(
            zip(points, on_front, strict=True), key=lambda pair: pair[0].price
        )
        if is_front
    ]
    return f"Score against {price_name} of {len(points)} candidates. On the front: " + "; ".join(
        best
    )


@dataclass(frozen=True)
class EvidenceCurve:
    """Evidence of a betting test after each pair, on a logarithmic scale."""

    frame: Frame
    x_marks: Sequence[Mark]
    y_marks: Sequence[Mark]
    better: str
    worse: str
    threshold_y: float
    threshold_label: str
    crossing: tuple[float, float] | None
    end: tuple[float, float] | None
    summary: str


def evidence_curve(
    e_plus: Sequence[float],
    e_minus: Sequence[float],
    *,
    threshold: float,
    crossing_pair: int | None,
    is_better: bool = True,
    frame: Frame = PRINTED_CURVE,
) -> EvidenceCurve | None:
    """None without a pair. The scale holds both curves and the threshold, from a hundredth up."""
    if not e_plus:
        return None
    values = [v for v in (*e_plus, *e_minus, threshold, 1.0) if math.isfinite(v) and v > 0]
    low = max(-3.0, math.floor(math.log10(min(values))))
    high = max(2.0, math.ceil(math.log10(max(values)) + 0.1))
    n = len(e_plus)

    def x(pair: int) -> float:
        return round(frame.left + pair / n * (frame.right - frame.left), 1)

    def y(value: float) -> float:
        place = math.log10(value) if value > 0 else low
        return frame.y((min(high, max(low, place)) - low) / (high - low))

    def path(curve: Sequence[float]) -> str:
        points = [(x(0), y(1.0)), *((x(i), y(v)) for i, v in enumerate(curve, start=1))]
        return "M " + " L ".join(f"{a} {b}" for a, b in points)

    step = max(1, math.ceil((high - low) / 5))
    powers = range(int(low), int(high) + 1, step)
    crossed = None
    if crossing_pair is not None and 1 <= crossing_pair <= n:
        decided = e_plus if is_better else (e_minus or e_plus)
        crossed = (x(crossing_pair), y(decided[crossing_pair - 1]))
    ticks = _nice(0, n, 5)
    last = e_plus[-1]
    summary = (
        f"Evidence for better after each of {n} pairs, logarithmic. It ends at {last:.3g}; the "
        f"threshold is {threshold:.3g}. "
    )
    summary += f"Crossed at pair {crossing_pair}." if crossed else "It was not crossed."
    return EvidenceCurve(
        frame=frame,
        x_marks=[Mark(x(int(v)), f"{int(v)}") for v in ticks if 0 <= v <= n],
        y_marks=[Mark(y(10.0**p), _power(p)) for p in powers],
        better=path(e_plus),
        worse=path(e_minus) if e_minus else "",
        threshold_y=y(threshold),
        threshold_label=f"1/α = {threshold:.3g}",
        crossing=crossed,
        end=(x(n), y(last)),
        summary=summary,
    )


@dataclass(frozen=True)
class EffectSpan:
    """An interval on a scale that a table of effects shares, 120 units wide."""

    zero: float
    mean: float
    low: float
    high: float
    is_up: bool
    is_clear: bool
    """The interval leaves zero out."""


def effect_spans(effects: Sequence[tuple[float, float, float]]) -> list[EffectSpan]:
    """(mean, low, high) in score, all on one scale: the widest reaches the edge."""
    reach = max((abs(v) for item in effects for v in item), default=0.0) or 1.0
    left = min(0.0, min((low for _, low, _ in effects), default=0.0))
    right = max(0.0, max((high for *_, high in effects), default=0.0))
    # At least a quarter on either side, so that zero never sits on the edge.
    left, right = min(left, -0.25 * reach), max(right, 0.25 * reach)

    def place(value: float) -> float:
        return round(4 + 112 * (value - left) / (right - left), 1)

    return [
        EffectSpan(place(0.0), place(mean), place(low), place(high), mean >= 0, low > 0 or high < 0)
        for mean, low, high in effects
    ]


SMALLEST_SPAN = 1e-6


def _axis(
    values: Sequence[float], start: float, end: float, *, floor: float, top: float | None = None
) -> tuple[list[float], Callable[[float], float]]:
    """Round values within the axis, and where a value is drawn."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = 0.12 * (high - low) or 0.1 * abs(high) or 0.5
    low, high = max(floor, low - margin), high + margin
    if top is not None:
        high = min(top, high)
    if high <= low:
        low, high = max(floor, low - 0.5), low + 0.5
    if high - low < SMALLEST_SPAN:  # marks are round numbers: they could not be told apart
        high = low + SMALLEST_SPAN

    def place(value: float) -> float:
        return round(start + (value - low) / (high - low) * (end - start), 1)

    return [v for v in _nice(low, high, 5) if low - 1e-12 <= v <= high + 1e-12], place


def _nice(low: float, high: float, n: int) -> list[float]:
    """Round numbers in the range, about n of them."""
    span = (high - low) or 1.0
    rough = span / n
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1.0, 2.0, 5.0, 10.0) if f * power >= rough - 1e-15)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 10) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".").replace("-", MINUS) or "0"


def _price(value: float, show: str) -> str:
    if show == "usd":
        if value == 0:
            return "$0"
        digits = max(2, 1 - math.floor(math.log10(abs(value))))
        return f"${value:.{digits}f}"
    if show == "s":
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    return f"{value:,.0f}"


def _power(power: int) -> str:
    if -2 <= power <= 4:
        return f"{10.0**power:,.2f}".rstrip("0").rstrip(".") if power < 0 else f"{10**power:,}"
    return "10" + str(power).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
