"""A thinned curve keeps its peaks, its ends and its gaps, and draws no line over a gap."""

from __future__ import annotations

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from training.thinning import LEAST, is_finite, thinned

values = st.one_of(
    st.floats(-1e6, 1e6), st.sampled_from([None, math.nan, math.inf, -math.inf]), st.just(0.0)
)
curves = st.lists(values, max_size=400).map(lambda found: list(enumerate(found)))
limits = st.integers(LEAST, 120)


@given(curves, limits)
def test_it_is_part_of_the_curve_in_order_and_within_the_limit(
    curve: list[tuple[int, float | None]], most: int
) -> None:
    drawn = thinned(curve, most)
    assert len(drawn) <= most
    places = [place for place, _ in drawn]
    assert places == sorted(set(places))
    assert all(curve[place] is pair for place, pair in zip(places, drawn, strict=True))
    if len(curve) <= most:
        assert drawn == curve


@given(curves, limits)
def test_ends_and_extremes_stay(curve: list[tuple[int, float | None]], most: int) -> None:
    drawn = thinned(curve, most)
    assert drawn[:1] == curve[:1]
    assert drawn[-1:] == curve[-1:]
    before = [value for _, value in curve if value is not None and is_finite(value)]
    after = [value for _, value in drawn if value is not None and is_finite(value)]
    assert bool(before) == bool(after)
    if before:
        assert (min(before), max(before)) == (min(after), max(after))


@given(curves, limits)
def test_between_two_points_a_gap_is_drawn_exactly_where_there_was_one(
    curve: list[tuple[int, float | None]], most: int
) -> None:
    drawn = thinned(curve, most)
    points = [place for place, value in drawn if is_finite(value)]
    gaps = {place for place, value in drawn if not is_finite(value)}
    for left, right in itertools.pairwise([-1, *points, len(curve)]):
        there = [place for place in range(left + 1, right) if not is_finite(curve[place][1])]
        shown = sorted(gaps & set(range(left + 1, right)))
        assert bool(there) == bool(shown)
        if there and points:
            assert (shown[0], shown[-1]) == (there[0], there[-1])


def test_a_single_peak_of_a_long_run_is_not_lost() -> None:
    curve: list[tuple[int, float | None]] = [(i, float(i % 50)) for i in range(2_000)]
    curve[777] = (777, None)
    curve[1_234] = (1_234, 99.0)
    drawn = thinned(curve, 120)
    assert {(777, None), (1_234, 99.0)} <= set(drawn)
    assert len(drawn) > 40
