"""Curves packed out of events: the same numbers, anew when the stream grows, and of one project."""

from __future__ import annotations

import math

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.events.services import NewEvent, append
from orchestrator.trainings import curves
from tests.base import People
from tests.web.training_rows import STEPS, make_trained_job
from training.curves import packed, unpacked
from training.models import TrainingCurve, TrainingJob

points = st.lists(
    st.tuples(
        st.integers(0, 2**24),
        st.one_of(st.none(), st.just(math.nan), st.floats(-(2.0**90), 2.0**90, width=32)),
    ),
    max_size=60,
)


@given(points)
def test_what_is_packed_comes_back(pairs: list[tuple[int, float | None]]) -> None:
    gaps = [(x, None if y is None or math.isnan(y) else y) for x, y in pairs]
    assert unpacked(packed(pairs)) == gaps


@pytest.mark.django_db
def test_a_curve_says_what_the_events_say_and_grows_with_them(people: People) -> None:
    job = make_trained_job(people.project)
    found = curves.overlay(people.project.pk, "reward", [job.pk], by_time=False, crowd=False)
    (curve,) = found.curves
    assert [step for step, _ in curve.points] == list(range(1, STEPS + 1))
    assert curve.points[0][1] == pytest.approx(0.3 + 0.04 + 0.02 * math.sin(1), abs=1e-6)
    assert list(curve.without_score) == [(3, 1)]
    skipped = _only(people, "gradient", job)
    assert [step for step, value in skipped.points if value is None] == [5]

    append(stream_id=job.stream_id, items=[NewEvent("train.step", {"step": 9, "reward_mean": 1.0})])
    assert _only(people, "reward", job).points[-1] == (9, 1.0)


@pytest.mark.django_db
def test_a_held_out_score_has_its_interval_and_what_errored(people: People) -> None:
    job = make_trained_job(people.project)
    job.runs.filter(kind="evaluation", step=8).update(n_errored=2)
    curve = _only(people, "held_out", job)
    assert [step for step, _ in curve.points] == [0, 4, 8]
    for step, value in curve.points:
        low, high = curve.intervals[step]
        assert value is not None
        assert 0 <= low < value < high <= 1
    assert list(curve.without_score) == [(8, 2.0)]


@pytest.mark.django_db
def test_others_are_a_crowd_and_jobs_of_other_projects_are_nobody(people: People) -> None:
    first, second = (make_trained_job(people.project, device="") for _ in range(2))
    elsewhere = make_trained_job(people.stranger.memberships.get().project, device="")
    found = curves.overlay(
        people.project.pk, "reward", [first.pk, elsewhere.pk], by_time=True, crowd=True
    )
    assert [curve.job for curve in found.curves] == [first.pk]
    assert found.n_crowd == 1
    assert max(each.high for each in found.crowd) == pytest.approx(0.64, abs=0.02)
    assert second.pk not in [curve.job for curve in found.curves]
    seconds = list(found.curves[0].seconds)
    assert len(seconds) == STEPS
    assert seconds == sorted(seconds)
    assert 0 <= seconds[0] <= 60
    assert found.pending == 0


@pytest.mark.django_db
def test_one_answer_packs_so_many_and_says_how_many_are_left(
    people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [make_trained_job(people.project, device="") for _ in range(3)]
    monkeypatch.setattr(curves, "AT_ONCE", 1)
    pending = []
    for _ in range(3):
        found = curves.overlay(people.project.pk, "reward", [jobs[0].pk], by_time=False, crowd=True)
        assert [curve.job for curve in found.curves] == [jobs[0].pk]
        pending.append(found.pending)
    assert pending == [2, 1, 0]
    assert TrainingJob.objects.filter(curves_seq=0).count() == 0


@pytest.mark.django_db
def test_the_number_of_queries_does_not_grow_with_the_jobs(people: People) -> None:
    make_trained_job(people.project)
    counts = []
    for n in (2, 3):
        jobs = [make_trained_job(people.project, device="") for _ in range(n)]
        pks = [job.pk for job in jobs]
        curves.overlay(people.project.pk, "held_out", pks, by_time=True, crowd=True)
        with CaptureQueriesContext(
            connection,
        ) as told:
            curves.overlay(people.project.pk, "held_out", pks, by_time=True, crowd=True)
        counts.append(len(told))
    assert counts[0] == counts[1] <= 6
    assert TrainingCurve.objects.filter(training_job=jobs[0], key="at").count() == 1


def _only(people: People, key: str, job: TrainingJob) -> curves.Curve:
    found = curves.overlay(people.project.pk, key, [job.pk], by_time=False, crowd=False)
    (curve,) = found.curves
    return curve
