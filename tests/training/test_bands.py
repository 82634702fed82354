"""Bands over many curves keep every extreme and are in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from training.bands import bands

curves = st.lists(
    st.lists(
        st.tuples(st.integers(0, 300), st.one_of(st.none(), st.floats(-1e3, 1e3))),
        max_size=40,
        unique_by=lambda pair: pair[0],
    ).map(lambda pairs: sorted(pairs, key=lambda pair: pair[0])),
    max_size=12,
)


@given(curves)
def test_bands_are_in_order_and_no_extreme_is_lost(
    found: list[list[tuple[int, float | None]]],
) -> None:
    made = bands([[(float(x), y) for x, y in curve] for curve in found])
    slack = 1e-6
    for each in made:
        assert each.low <= each.tenth + slack
        assert each.tenth <= each.middle + slack
        assert each.middle <= each.ninetieth + slack
        assert each.ninetieth <= each.high + slack
        assert each.n >= 1
    values = [y for curve in found for _, y in curve if y is not None]
    assert bool(values) == bool(made)
    if values:
        assert min(each.low for each in made) == min(values)
        assert max(each.high for each in made) == max(values)
    assert [each.x for each in made] == sorted(each.x for each in made)


def test_each_curve_counts_once_however_many_points_it_has() -> None:
    many = [(float(x), 1.0) for x in range(101)]
    few = [(0.0, 0.0), (100.0, 0.0)]
    made = bands([many, few], n_bins=10)
    assert {each.n for each in made} == {2}
    assert {each.middle for each in made} == {0.5}


def test_nothing_is_drawn_across_a_gap() -> None:
    made = bands([[(0.0, 1.0), (10.0, 1.0), (20.0, None), (90.0, 1.0), (100.0, 1.0)]], n_bins=10)
    assert [each.x for each in made] == [5.0, 15.0, 95.0]
