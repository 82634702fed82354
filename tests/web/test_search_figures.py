"""Geometry of the figures of a search, without a database."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.web.search_figures import (
    NARROW,
    WIDE,
    PointIn,
    effect_spans,
    evidence_curve,
    front_of,
    pareto_figure,
)

SCORES = st.floats(0, 1)
PRICES = st.floats(0, 10)


def points(pairs: list[tuple[float, float]]) -> list[PointIn]:
    return [PointIn(str(i), f"h_{i}", *pair, "other") for i, pair in enumerate(pairs)]


@given(st.lists(st.tuples(SCORES, PRICES), min_size=1, max_size=20))
def test_nothing_beats_what_is_on_the_front_and_something_beats_the_rest(
    pairs: list[tuple[float, float]],
) -> None:
    found = points(pairs)
    front = front_of(found)
    assert any(front)
    for point, is_front in zip(found, front, strict=True):
        better = [
            other
            for other in found
            if (other.score, -other.price) != (point.score, -point.price)
            and other.score >= point.score
            and other.price <= point.price
        ]
        assert is_front == (not better)


@given(st.lists(st.tuples(SCORES, PRICES), min_size=1, max_size=20))
def test_every_candidate_is_drawn_inside_the_frame(pairs: list[tuple[float, float]]) -> None:
    for frame in (WIDE, NARROW):
        figure = pareto_figure(points(pairs), frame, price_name="tokens", show="tokens")
        assert len(figure.spots) == len(pairs)
        for spot in figure.spots:
            assert frame.left <= spot.x <= frame.right and frame.top <= spot.y <= frame.bottom
        for mark in figure.x_marks:
            assert frame.left - 1 <= mark.at <= frame.right + 1


def test_prices_that_hardly_differ_have_an_axis() -> None:
    figure = pareto_figure(points([(0.0, 0.0), (0.5, 1e-15)]), WIDE, price_name="$", show="usd")
    assert all(WIDE.left - 1 <= mark.at <= WIDE.right + 1 for mark in figure.x_marks)


def test_equal_candidates_are_on_the_front_together() -> None:
    assert front_of(points([(0.5, 1.0), (0.5, 1.0), (0.4, 1.0)])) == [True, True, False]


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 0.5)), min_size=1, max_size=12))
def test_intervals_share_a_scale_on_which_zero_is_seen(
    effects: list[tuple[float, float]],
) -> None:
    rows = [(mean, mean - half, mean + half) for mean, half in effects]
    spans = effect_spans(rows)
    assert len({span.zero for span in spans}) == 1
    for span, (mean, low, high) in zip(spans, rows, strict=True):
        assert 0 <= span.low <= span.mean <= span.high <= 120
        assert (span.mean > span.zero) == (mean > 0) or abs(mean) < 0.01
        assert span.is_clear == (low > 0 or high < 0)


def test_the_curve_crosses_where_the_test_did() -> None:
    e_plus = [1.4, 3.0, 9.0, 24.0, 60.0]
    curve = evidence_curve(e_plus, [0.7, 0.4, 0.2, 0.1, 0.05], threshold=20, crossing_pair=4)
    assert curve is not None and curve.crossing is not None
    assert curve.crossing[1] < curve.threshold_y
    assert "Crossed at pair 4" in curve.summary
    numbers = [float(n) for n in re.findall(r"[\d.]+", curve.better)]
    assert numbers[-2:] == list(curve.end or ())


def test_a_test_without_pairs_has_no_curve_and_huge_evidence_has_one() -> None:
    assert evidence_curve([], [], threshold=20, crossing_pair=None) is None
    huge = evidence_curve([1e300] * 3, [1e-300] * 3, threshold=20, crossing_pair=None)
    assert huge is not None and huge.crossing is None
    assert all(huge.frame.top <= mark.at <= huge.frame.bottom for mark in huge.y_marks)
