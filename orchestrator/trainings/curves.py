"""The curves of many trainings at once, packed out of their events.

A step is an event of some 2 kB with all its figures; a chart of a thousand jobs wants one figure of
each. So each quantity of a job is kept packed beside it, whole and thinned, and made anew when the
job's stream has grown: after an attempt, or by whoever looks first, `AT_ONCE` jobs at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet

from optimizer.statistics import wilson_interval
from orchestrator.events.models import Event
from training.bands import Bin, bands
from training.curves import joined, packed, series, unpacked, without_score
from training.health import BOARD
from training.models import TrainingCurve, TrainingJob, TrainingRun, TrainingRunKind
from training.thinning import thinned

MOST_POINTS = 2_000
"""Of a line that stands out."""
COARSE_POINTS = 48
"""Of a line in the crowd, which is drawn as bands."""
AT_ONCE = 40
MOST_JOBS = 1_000
"""The newest of a project that are drawn together."""
KEYS = {chart.key: chart for chart in BOARD}
Pairs = Sequence[tuple[float, float | None]]


@dataclass(frozen=True)
class Curve:
    job: int
    points: Pairs
    """By step."""
    n: int
    """Before thinning."""
    seconds: Sequence[float] = ()
    """When each point was, since the first step; empty unless asked for."""
    intervals: Mapping[float, tuple[float, float]] = field(default_factory=dict)
    """95 %, by step; only of a held-out score."""
    without_score: Pairs = ()
    """Rollouts that had none, by step."""
    without_score_s: Sequence[float] = ()
    """When those were; empty unless asked for."""


@dataclass(frozen=True)
class Overlay:
    """Curves of one quantity: some in full, all others of the project as bands."""

    curves: Sequence[Curve]
    crowd: Sequence[Bin]
    n_crowd: int
    pending: int
    """Jobs whose newest steps are not packed yet: to be asked for again."""


def jobs_on_board(project_id: int) -> QuerySet[TrainingJob]:
    """The newest that may have a curve, newest first."""
    return TrainingJob.objects.filter(project_id=project_id).order_by("-pk")[:MOST_JOBS]


def named(project_id: int, pks: Collection[int]) -> dict[int, TrainingJob]:
    return TrainingJob.objects.filter(project_id=project_id).in_bulk(list(pks))


def overlay(
    project_id: int,
    key: str,
    shown: Collection[int],
    *,
    by_time: bool,
    crowd: bool,
    most: int = MOST_POINTS,
) -> Overlay:
    """`key` of `KEYS`; ids of other projects in `shown` are nobody. `most`: points of a line."""
    listed = list(jobs_on_board(project_id).values_list("pk", flat=True))
    wanted = [pk for pk in listed if pk in set(shown)]
    asked = listed if crowd else wanted
    stale = _stale(asked)
    # Those that stand out first, the rest of them as far as one answer goes.
    in_order = sorted(stale, key=lambda job: job.pk not in shown)
    for job in in_order[:AT_ONCE]:
        pack(job)
    others = _coarse(set(listed) - set(wanted), key, by_time=by_time) if crowd else []
    return Overlay(
        curves=_in_full(wanted, key, by_time=by_time, most=most),
        crowd=bands(others),
        n_crowd=len(others),
        pending=max(0, len(stale) - AT_ONCE),
    )


def last_values(pks: Sequence[int]) -> dict[int, dict[str, float | None]]:
    """What each job last measured, by quantity, as far as it is packed. One query."""
    found: dict[int, dict[str, float | None]] = {}
    for job, key, data in TrainingCurve.objects.filter(
        training_job__in=pks, key__in=list(KEYS)
    ).values_list("training_job", "key", "coarse"):
        found.setdefault(job, {})[key] = unpacked(bytes(data))[-1][1]
    return found


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


def _in_full(pks: Sequence[int], key: str, *, by_time: bool, most: int) -> list[Curve]:
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
        drawn = thinned(points, most)
        missing = list(found.get((pk, "no_score"), ())) if key == "reward" else []
        intervals: dict[float, tuple[float, float]] = {}
        for step, (mean, n, errored) in evaluated.get(pk, {}).items():
            if n and mean is not None:
                intervals[step] = wilson_interval(min(1.0, max(0.0, mean)) * n, n)
            if errored:
                missing.append((step, float(errored)))
        times = found.get((pk, "at"), ()) if by_time else ()
        curves.append(
            Curve(
                job=pk,
                points=drawn,
                n=len(points),
                seconds=_seconds(drawn, times),
                intervals=intervals,
                without_score=missing,
                without_score_s=_seconds(missing, times),
            )
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


def _coarse(pks: Collection[int], key: str, *, by_time: bool) -> list[Pairs]:
    """Thinned, by step or by seconds."""
    found: dict[int, dict[str, Pairs]] = {}
    for job, name, data in TrainingCurve.objects.filter(
        training_job__in=pks, key__in=[key, "at"] if by_time else [key]
    ).values_list("training_job", "key", "coarse"):
        found.setdefault(job, {})[name] = unpacked(bytes(data))
    lines = []
    for quantities in found.values():
        if points := quantities.get(key):
            if seconds := _seconds(points, quantities.get("at", ())):
                points = [(at, y) for at, (_, y) in zip(seconds, points, strict=True)]
            lines.append(points)
    return lines


def _seconds(points: Pairs, times: Pairs) -> list[float]:
    """When each step of `points` was; between two times of a thinned curve in proportion."""
    known = [(step, at) for step, at in times if at is not None]
    if not known:
        return []
    steps = [step for step, _ in known]
    found = []
    for step, _ in points:
        right = min(bisect_left(steps, step), len(known) - 1)
        left = max(0, right - 1)
        (x0, y0), (x1, y1) = known[left], known[right]
        share = 1.0 if x1 == x0 else min(1.0, max(0.0, (step - x0) / (x1 - x0)))
        found.append(y0 + share * (y1 - y0))
    return found
