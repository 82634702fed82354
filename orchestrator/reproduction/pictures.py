"""Curves of a grid as SVG files: plain text, no library, readable in both colour schemes.

One line per lambda, the mean over seeds, with the seeds as thin lines behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from orchestrator.reproduction.results import Line, figure

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 92, 34, 40
COLOURS = ("#6b7280", "#0f766e", "#2563eb", "#c2410c", "#7c3aed", "#be185d")
"""By place in the list of lambdas; GRPO, which comes first, is grey."""


@dataclass(frozen=True)
class Picture:
    """A curve over steps that every result holds under `field`."""

    field: str
    file: str
    title: str
    unit: str


PICTURES = (
    Picture("pool_ce", "echo-surprise.svg", "Surprise at the environment", "nats a token"),
    Picture("select", "echo-held-out.svg", "Held-out tasks solved", "share"),
    Picture("reward", "echo-reward.svg", "Reward of the rollouts trained on", "mean"),
)


def draw(lines: Sequence[Line], folder: Path) -> list[Path]:
    """Writes all pictures; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for picture in PICTURES:
        path = folder / picture.file
        path.write_text(svg(picture, lines), encoding="utf-8")
        written.append(path)
    return written


def svg(picture: Picture, lines: Sequence[Line]) -> str:
    """One picture. Points without a value are left out."""
    values = sorted({float(line["lambda"]) for line in lines})
    curves = {
        value: [_points(line[picture.field]) for line in lines if float(line["lambda"]) == value]
        for value in values
    }
    points = [point for seeds in curves.values() for seed in seeds for point in seed]
    if not points:
        points = [(0.0, 0.0)]
    frame = _Frame.around(points)
    parts = [*_head(picture), *frame.axes(picture.unit)]
    for place, value in enumerate(values):
        colour = COLOURS[place % len(COLOURS)]
        for seed in curves[value]:
            parts.append(frame.line(seed, colour, width=1.0, opacity=0.35))
        middle = _mean_curve(curves[value])
        parts.append(frame.line(middle, colour, width=2.5, opacity=1.0))
        name = "GRPO (λ 0)" if value == 0.0 else f"λ {value:g}"
        y = TOP + 14 + 18 * place
        parts.append(_text(WIDTH - RIGHT + 12, y, name, fill=colour, size=12))
    return "\n".join([*parts, "</svg>", ""])


def _points(curve: Sequence[Sequence[Any]]) -> list[tuple[float, float]]:
    return [(float(step), float(value)) for step, value in curve if value is not None]


def _mean_curve(seeds: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    steps = sorted({step for seed in seeds for step, _ in seed})
    found = []
    for step in steps:
        mean = figure(y for seed in seeds for x, y in seed if x == step).mean
        if mean is not None:
            found.append((step, mean))
    return found


@dataclass(frozen=True)
class _Frame:
    last: float
    low: float
    high: float

    @classmethod
    def around(cls, points: Sequence[tuple[float, float]]) -> _Frame:
        ys = [y for _, y in points]
        margin = 0.08 * (max(ys) - min(ys)) or 0.5
        low = max(0.0, min(ys) - margin) if min(ys) >= 0 else min(ys) - margin
        return cls(max(1.0, *(x for x, _ in points)), low, max(ys) + margin)

    def x(self, step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * step / self.last

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share

    def line(
        self, points: Sequence[tuple[float, float]], colour: str, *, width: float, opacity: float
    ) -> str:
        path = " ".join(f"{self.x(step):.1f},{self.y(value):.1f}" for step, value in points)
        return (
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-opacity="{opacity}" stroke-linejoin="round"/>'
        )

    def axes(self, unit: str) -> list[str]:
        parts = []
        for number in range(5):
            value = self.low + (self.high - self.low) * number / 4
            y = self.y(value)
            parts.append(
                f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" '
                'stroke="#d1d5db" stroke-width="1"/>'
            )
            parts.append(_text(LEFT - 8, y + 4, f"{value:.2f}", anchor="end"))
        for number in range(5):
            step = self.last * number / 4
            parts.append(_text(self.x(step), HEIGHT - 20, f"{step:g}", anchor="middle"))
        parts.append(_text(self.x(self.last / 2), HEIGHT - 5, "step", anchor="middle"))
        parts.append(_text(LEFT, TOP - 6, unit))
        return parts


def _head(picture: Picture) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="system-ui, sans-serif" role="img">',
        f"<title>{escape(picture.title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(LEFT, 16, picture.title, size=14, fill="#111827"),
    ]


def _text(
    x: float, y: float, text: str, *, size: int = 11, fill: str = "#4b5563", anchor: str = "start"
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" '
        f'text-anchor="{anchor}">{escape(text)}</text>'
    )
