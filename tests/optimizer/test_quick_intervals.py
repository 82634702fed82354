"""Intervals without resampling agree with those of all resamples, and with drawn ones."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.statistics import quick
from optimizer.statistics.paired import _levels, bootstrap, bootstrap_exact
from optimizer.statistics.quick import FEWEST_UNITS, quick_intervals

LEVELS = list(_levels())


def steps_apart(units: list[Fraction], step: Fraction) -> float:
    """The largest distance of a bound from the exact one, in steps of the resamples' lattice."""
    found = quick_intervals(units, LEVELS, seed=1)
    exact = bootstrap_exact(units)
    return max(
        abs(one - two) * len(units) / float(step)
        for level in found
        for one, two in zip(found[level], exact[level], strict=True)
    )


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.sampled_from([-1, 0, 0, 0, 1]), min_size=FEWEST_UNITS, max_size=40),
    st.sampled_from([1, 4]),
)
def test_bounds_are_those_of_all_resamples_or_a_step_beside(
    values: list[int], denominator: int
) -> None:
    units = [Fraction(value, denominator) for value in values]
    assert steps_apart(units, Fraction(1, denominator)) == 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quick, "MOST_DIGITS", -1)
        assert steps_apart(units, Fraction(1, denominator)) <= 1.01


@pytest.mark.parametrize("n", [60, 500])
def test_finely_graded_scores_agree_with_drawn_resamples(n: int) -> None:
    draw = random.Random(n)
    units = [Fraction(draw.randrange(-500, 1000), 1000) for _ in range(n)]
    found, drawn = (
        quick_intervals(units, LEVELS, seed=1),
        bootstrap(units, resamples=4_000 if n < 100 else 1_000),
    )
    width = drawn[95][1] - drawn[95][0]
    for level in found:
        for one, two in zip(found[level], drawn[level], strict=True):
            assert abs(one - two) < 0.05 * width


def test_nearly_all_ties_leave_zero_inside() -> None:
    """Three wins among 500 ties: one resample in twenty has none of them."""
    units = [Fraction(1)] * 3 + [Fraction(0)] * 497
    found = quick_intervals(units, LEVELS, seed=1)
    assert found[95] == (0.0, 7 / 500)


def test_equal_units_have_no_width() -> None:
    units = [Fraction(1, 4)] * 30
    assert quick_intervals(units, LEVELS, seed=1) == {90: (0.25, 0.25), 95: (0.25, 0.25)}
