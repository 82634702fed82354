"""The curves of many trainings at once, packed out of their events.

A step is an event of some 2 kB with all its figures; a chart of a thousand jobs wants one figure of
each. So each quantity of a job is kept packed beside it, whole and thinned, and made anew when the
job's stream has grown: after an attempt, or by whoever looks first, `AT_ONCE` jobs at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from optimizer.statistics import wilson_interval
from orchestrator.events.models import Event
from training.curves import joined, packed, series, unpacked, without_score
from training.health import BOARD
from training.models import TrainingCurve, TrainingJob, TrainingRun, TrainingRunKind
from training.thinning import thinned

MOST_POINTS = 2_000
"""Of a line that stands out."""
COARSE_POINTS = 48
"""Of a line in the crowd."""
AT_ONCE = 40
MOST_JOBS = 1_000
"""The newest of a project that are drawn together."""
KEYS = {chart.key: chart for chart in BOARD}
Pairs = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Curve:
    job: int
    points: Pairs
    n: int
    """Before thinning."""
    intervals: Mapping[float, tuple[float, float]] = field(default_factory=dict)
    """95 %, by the place on the x axis; only of a held-out score."""
    without_score: Pairs = ()
    """Rollouts that had none, by the place on the x axis."""


@dataclass(frozen=True)
class Overlay:
    """Curves of one quantity: some in full, all others of the project as a crowd."""

    curves: Sequence[Curve]
    crowd: Sequence[Curve]
    pending: int
    """Jobs whose newest steps are not packed yet: to be asked for again."""


def jobs_on_board(project_id: int) -> QuerySet[TrainingJob]:
    """The newest that may have a curve, newest first."""
    return TrainingJob.objects.filter(project_id=project_id).order_by("-pk")[:MOST_JOBS]


def overlay(
    project_id: int, key: str, shown: Collection[int], *, by_time: bool, crowd: bool
) -> Overlay:
    """`key` of `KEYS`; ids of other projects in `shown` are nobody."""
    listed = list(jobs_on_board(project_id).values_list("pk", flat=True))
    wanted = [pk for pk in listed if pk in set(shown)]
    asked = listed if crowd else wanted
    stale = _stale(asked)
    # Those that stand out first, the rest of them as far as one answer goes.
    in_order = sorted(stale, key=lambda job: job.pk not in shown)
    for job in in_order[:AT_ONCE]:
        pack(job)
    return Overlay(
        curves=_in_full(wanted, key, by_time=by_time),
        crowd=_coarse(set(listed) - set(wanted), key, by_time=by_time) if crowd else [],
        pending=max(0, len(stale) - AT_ONCE),
    )


def _stale(pks: Sequence[int]) -> list[TrainingJob]:
    grown = TrainingJob.objects.filter(stream__last_seq__gt=F("curves_seq"))
    return list(grown.filter(pk__in=pks).select_related("stream"))


def pack(job: TrainingJob) -> None:
    """All its curves anew, from its events as they are."""
    upto = job.stream.last_seq
    steps, evaluations, at = _told(job.stream_id)
    rows = joined(steps, evaluations)
    pairs = {chart.key: series(chart, rows) for chart in BOARD}
    pairs["no_score"] = without_score(rows)
    found: dict[str, Pairs] = {key: each for key, each in pairs.items() if each}
    if at:
        began = min(at.values())
        found["at"] = [(step, (at[step] - began).total_seconds()) for step in sorted(at)]
    made = [
        TrainingCurve(
            training_job=job,
            key=key,
            data=packed(each),
            coarse=packed(thinned([(float(x), y) for x, y in each], COARSE_POINTS)),
        )
        for key, each in found.items()
    ]
    with transaction.atomic():
        TrainingCurve.objects.bulk_create(
            made,
            update_conflicts=True,
            unique_fields=["training_job", "key"],
            update_fields=["data", "coarse"],
        )
        TrainingJob.objects.filter(pk=job.pk).update(curves_seq=upto)


def _told(stream_id: int) -> tuple[list[Any], list[Any], dict[int, datetime]]:
    """Steps and evaluations in order, and when each step ended; the later record counts."""
    steps: dict[int, Any] = {}
    evaluations: dict[int, Any] = {}
    at: dict[int, datetime] = {}
    events = Event.objects.filter(stream_id=stream_id, kind__in=["train.step", "train.evaluated"])
    for seq, kind, when, payload in events.order_by("seq").values_list(
        "seq", "kind", "at", "payload"
    ):
        step = int(payload.get("step", seq))
        (steps if kind == "train.step" else evaluations)[step] = payload
        at[step] = max(when, at.get(step, when))
    return (
        [steps[step] for step in sorted(steps)],
        [evaluations[step] for step in sorted(evaluations)],
        at,
    )


def _in_full(pks: Sequence[int], key: str, *, by_time: bool) -> list[Curve]:
    """In the order of `pks`. Three queries."""
    found: dict[tuple[int, str], Pairs] = {
        (job, name): unpacked(bytes(data))
        for job, name, data in TrainingCurve.objects.filter(
            training_job__in=pks, key__in=[key, "at", "no_score"]
        ).values_list("training_job", "key", "data")
    }
    evaluated = _evaluated(pks) if key == "held_out" else {}
    curves = []
    for pk in pks:
        points = found.get((pk, key))
        if not points:
            continue
        place = dict(found.get((pk, "at"), ())) if by_time else {}

        def at(step: float, place: Mapping[float, float | None] = place) -> float:
            return place.get(step) or 0.0 if place else step

        drawn = thinned([(at(x), y) for x, y in points], MOST_POINTS)
        missing = found.get((pk, "no_score"), ()) if key == "reward" else ()
        intervals: dict[float, tuple[float, float]] = {}
        for step, (mean, n, errored) in evaluated.get(pk, {}).items():
            if n and mean is not None:
                intervals[at(step)] = wilson_interval(min(1.0, max(0.0, mean)) * n, n)
            if errored:
                missing = [*missing, (step, float(errored))]
        curves.append(
            Curve(pk, drawn, len(points), intervals, [(at(step), count) for step, count in missing])
        )
    return curves


def _evaluated(pks: Sequence[int]) -> dict[int, dict[int, tuple[float | None, int, int]]]:
    """Mean, scored and errored rollouts of each held-out evaluation, by job and step."""
    found: dict[int, dict[int, tuple[float | None, int, int]]] = {}
    for pk, step, mean, scored, errored in TrainingRun.objects.filter(
        training_job__in=pks, kind=TrainingRunKind.EVALUATION
    ).values_list("training_job", "step", "mean", "n_scored", "n_errored"):
        found.setdefault(pk, {})[step] = (mean, scored, errored)
    return found


def _coarse(pks: Collection[int], key: str, *, by_time: bool) -> list[Curve]:
    found: dict[int, dict[str, Pairs]] = {}
    for job, name, data in TrainingCurve.objects.filter(
        training_job__in=pks, key__in=[key, "at"] if by_time else [key]
    ).values_list("training_job", "key", "data" if by_time else "coarse"):
        found.setdefault(job, {})[name] = unpacked(bytes(data))
    curves = []
    for job in sorted(found):
        points: Pairs = found[job].get(key, ())
        if by_time:
            place = dict(found[job].get("at", ()))
            points = thinned([(place.get(x) or 0.0, y) for x, y in points], COARSE_POINTS)
        if points:
            curves.append(Curve(job, points, len(points)))
    return curves
