"""The curves of many trainings on one page: what is listed, and the figures as compact JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import QueryDict
from django.urls import reverse

from orchestrator.trainings.curves import KEYS, MOST_POINTS, Curve, Overlay
from orchestrator.trainings.sweeps import lambda_of
from orchestrator.web.colours import colour_of
from training.health import Chart
from training.models import TrainingJob

SHOWN = 10
"""That stand out without a choice."""
MOST_SHOWN = 40
FEWEST_POINTS = 100
SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Learning", ("reward", "held_out", "zero_advantage", "truncated")),
    ("World model", ("pool_ce", "surprise", "warning_ce", "balance")),
    ("Policy", ("kl", "entropy", "clip", "mismatch", "gradient", "staleness")),
    ("Machine", ("tokens_per_s", "memory")),
)
Pairs = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Line:
    """A job on the list."""

    job: TrainingJob
    is_shown: bool
    note: str


@dataclass(frozen=True)
class Section:
    name: str
    charts: Sequence[Chart]


def sections() -> list[Section]:
    return [Section(name, [KEYS[key] for key in keys]) for name, keys in SECTIONS]


def chosen(asked: QueryDict, listed: Sequence[TrainingJob]) -> list[int]:
    """Ids that stand out: those of `?job=`, of `?sweep=`, or the newest that have a step."""
    known = {job.pk for job in listed}
    if "job" in asked or "none" in asked:
        found = [int(each) for each in asked.getlist("job") if each.isdecimal()]
        return [pk for pk in dict.fromkeys(found) if pk in known][:MOST_SHOWN]
    sweep = asked.get("sweep", "")
    if sweep.isdecimal():
        return [job.pk for job in listed if job.sweep_id == int(sweep)][:MOST_SHOWN]
    return [job.pk for job in listed if job.step][:SHOWN]


def lines(listed: Sequence[TrainingJob], shown: Sequence[int]) -> list[Line]:
    ids = set(shown)
    return [Line(job, job.pk in ids, note_of(job)) for job in listed]


def note_of(job: TrainingJob) -> str:
    """What tells it from its like: λ and seed. The name of a sweep's job says both."""
    if job.sweep_id is not None:
        return ""
    try:
        return f"λ {lambda_of(job):g}, seed {job.manifest['seed']}"
    except (KeyError, TypeError, ValueError):
        return ""


def points_asked(text: str) -> int:
    """Of a line, as wide as the chart is."""
    asked = int(text) if text.isdecimal() and len(text) < 6 else MOST_POINTS
    return min(MOST_POINTS, max(FEWEST_POINTS, asked))


def as_json(found: Overlay, key: str, jobs: Mapping[int, TrainingJob]) -> dict[str, Any]:
    """Columns of numbers with five digits; a gap is null. Keys are short: there are many."""
    chart = KEYS[key]
    return {
        "title": chart.title,
        "unit": chart.unit,
        "top": chart.top,
        "sparse": chart.is_sparse,
        "pending": found.pending,
        "jobs": [_job(curve, jobs[curve.job]) for curve in found.curves],
        "crowd": _crowd(found),
    }


def _job(curve: Curve, job: TrainingJob) -> dict[str, Any]:
    colour = colour_of(job.pk)
    made: dict[str, Any] = {
        "id": job.pk,
        "name": str(job),
        "note": note_of(job),
        "slot": colour.slot,
        "dash": colour.is_dashed,
        "live": not job.has_ended,
        "url": reverse("web:training_job", args=[job.project_id, job.pk]),
        "n": curve.n,
        "step": _steps([step for step, _ in curve.points]),
        "y": [_short(value) for _, value in curve.points],
    }
    if curve.seconds:
        made["s"] = [_short(at) for at in curve.seconds]
    if curve.intervals:
        ends = [curve.intervals.get(step) for step, _ in curve.points]
        made["low"] = [None if end is None else _short(end[0]) for end in ends]
        made["high"] = [None if end is None else _short(end[1]) for end in ends]
    if curve.without_score:
        made["lost"] = [[_short(step), _short(count)] for step, count in curve.without_score]
        if curve.without_score_s:
            made["lost_s"] = [_short(at) for at in curve.without_score_s]
    return made


def _steps(steps: Sequence[float]) -> Any:
    """The first alone where each is one more than the one before."""
    if steps and steps[-1] - steps[0] == len(steps) - 1:
        return int(steps[0])
    return [_short(step) for step in steps]


def _crowd(found: Overlay) -> dict[str, Any]:
    names = ("x", "low", "tenth", "middle", "ninetieth", "high")
    columns = {name: [_short(getattr(each, name)) for each in found.crowd] for name in names}
    return {"n": found.n_crowd, **columns}


def _short(value: float | None) -> float | None:
    if value is None:
        return None
    if value.is_integer():
        return int(value)
    return float(f"{value:.5g}")
