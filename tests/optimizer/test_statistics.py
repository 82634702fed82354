from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors import StatisticsDomain
from optimizer.statistics import (
    Pair,
    Verdict,
    alpha_share,
    compare,
    e_process,
    power,
    smallest_certifiable_gain,
    wilson_interval,
)
from optimizer.statistics.lattice import flipped_sums, resampled_sums
from optimizer.statistics.paired import bootstrap, bootstrap_exact

differences = st.lists(st.one_of(st.none(), st.floats(-1, 1)), max_size=40)
scores = st.sampled_from([0.0, 0.25, 0.5, 1.0])
pairs = st.lists(
    st.builds(
        Pair, st.sampled_from("abcdef"), st.one_of(st.none(), scores), st.one_of(st.none(), scores)
    ),
    max_size=20,
)


@given(differences)
def test_the_mirror_image_swaps_the_verdict(d: list[float | None]) -> None:
    found, mirrored = e_process(d), e_process([None if x is None else -x for x in d])
    assert found.e_plus == pytest.approx(mirrored.e_minus)
    swapped = {
        Verdict.IMPROVED: Verdict.NOT_IMPROVED,
        Verdict.NOT_IMPROVED: Verdict.IMPROVED,
        Verdict.INDECISIVE: Verdict.INDECISIVE,
    }
    assert mirrored.verdict == swapped[found.verdict]


@given(differences)
def test_missing_pairs_change_nothing_but_the_coverage(d: list[float | None]) -> None:
    found = e_process(d, min_coverage=0.0)
    without = e_process([x for x in d if x is not None], min_coverage=0.0)
    assert (found.e_plus, found.e_minus) == (without.e_plus, without.e_minus)
    assert found.crossing_pair == without.crossing_pair


@given(differences, differences)
def test_the_first_crossing_is_final(before: list[float | None], after: list[float | None]) -> None:
    first = e_process(before)
    if first.has_crossed:
        longer = e_process([*before, *after])
        assert (longer.verdict, longer.valid) == (first.verdict, first.valid)


def test_a_value_on_the_threshold_is_decided_exactly() -> None:
    # (1 + .25·1)² with one bet: exactly 25/16, which a float sum might miss by a hair.
    assert e_process([1, 1], alpha=0.64, grid=[0.25]).verdict is Verdict.IMPROVED
    # With bets of .1 three wins give 1.331, which floats miss from above.
    assert e_process([1, 1, 1], alpha=0.5, grid=[0.1]).verdict is Verdict.INDECISIVE
    assert e_process([1.0] * 3, alpha=0.8, grid=[0.1]).crossing_pair == 3


def test_a_very_long_win_does_not_overflow() -> None:
    found = e_process([1.0] * 3000)
    assert math.isfinite(found.e_plus[-1])
    assert found.verdict is Verdict.IMPROVED


def test_peeking_at_every_pair_keeps_the_error_rate() -> None:
    draw = random.Random(7)
    rate = 0.4
    wrong = sum(
        e_process([(draw.random() < rate) - (draw.random() < rate) for _ in range(150)]).verdict
        is Verdict.IMPROVED
        for _ in range(400)
    )
    assert wrong / 400 <= 0.05


@pytest.mark.parametrize("bad", [[1.01], [float("nan")], [-2]])
def test_differences_outside_the_domain_are_refused(bad: list[float]) -> None:
    with pytest.raises(StatisticsDomain):
        e_process(bad)


def test_an_unusable_alpha_shift_or_certificate_number_is_refused() -> None:
    with pytest.raises(StatisticsDomain, match="alpha"):
        e_process([0.0], alpha=0.0)
    with pytest.raises(StatisticsDomain, match="shift"):
        e_process([0.0], shift=0.5)
    with pytest.raises(StatisticsDomain, match="bets"):
        e_process([0.0], grid=[])
    with pytest.raises(StatisticsDomain):
        alpha_share(0)


def test_spent_alpha_never_reaches_the_whole() -> None:
    assert sum(alpha_share(j) for j in range(1, 2000)) < 0.05


@pytest.mark.parametrize(
    ("gain", "accept", "median"),
    [(0.0, 0.04, None), (0.05, 0.19, None), (0.1, 0.64, 174), (0.15, 0.96, 122), (0.3, 1.0, 35)],
)
def test_power_agrees_with_the_reference_simulation(
    gain: float, accept: float, median: int | None
) -> None:
    found = power(400, 0.4, gain)
    assert found.accept == pytest.approx(accept, abs=0.02)
    if median is not None:
        assert found.median_pairs == pytest.approx(median, abs=6)


def test_the_smallest_certifiable_gain_shrinks_with_the_budget() -> None:
    gains = [smallest_certifiable_gain(pairs, 0.4) for pairs in (8, 20, 60)]
    assert gains[0] is None
    assert gains[1] is not None
    assert gains[2] is not None
    assert gains[1] > gains[2] > 0.15


@given(st.lists(st.sampled_from([-1, 0, 2, 3]), min_size=1, max_size=6))
def test_distributions_agree_with_enumeration(points: list[int]) -> None:
    resamples = Counter(map(sum, product(points, repeat=len(points))))
    assert resampled_sums(points) == resamples
    flips = Counter(
        sum(s * p for s, p in zip(signs, points, strict=True))
        for signs in product((-1, 1), repeat=len(points))
    )
    assert flipped_sums(points) == flips


def test_the_exact_bootstrap_copes_with_three_decimals() -> None:
    draw = random.Random(1)
    units = [Fraction(draw.randrange(-1000, 1001), 1000) for _ in range(25)]
    low, high = bootstrap_exact(units)[95]
    assert low < float(sum(units) / 25) < high
    resampled = bootstrap(units)[95]
    assert resampled == pytest.approx((low, high), abs=0.02)


@given(pairs)
def test_a_comparison_counts_every_pair(case: list[Pair]) -> None:
    found = compare(case, resamples=200)
    assert found.scheduled == len(case)
    assert 0.0 <= found.coverage <= 1.0
    assert found.pairs >= found.units
    sign = found.sign_test
    assert sign.wins + sign.losses + sign.ties == found.units
    if found.mean is not None:
        assert found.low is not None
        assert found.high is not None
        assert found.low <= found.mean + 1e-12
        assert found.mean <= found.high + 1e-12


def test_replicates_are_averaged_before_they_are_counted() -> None:
    once = compare([Pair("a", 0.0, 1.0), Pair("b", 1.0, 1.0)])
    often = compare([Pair("a", 0.0, 1.0)] * 9 + [Pair("b", 1.0, 1.0)] * 9)
    assert often.intervals == once.intervals
    assert (often.units, often.pairs, often.mcnemar) == (2, 18, None)


def test_nothing_measured_is_not_a_difference_of_zero() -> None:
    found = compare([Pair("a", None, 1.0)])
    assert (found.mean, found.low, found.coverage) == (None, None, 0.0)


def test_thirds_are_thirds() -> None:
    found = compare([Pair("a", 0.0, 1 / 3), Pair("b", 2 / 3, 1.0), Pair("c", 1.0, 2 / 3)])
    assert found.mean == 1 / 9
    assert found.sign_flip is not None
    assert found.sign_flip.one_sided == 0.5


def test_one_gain_among_ties_proves_nothing() -> None:
    found = compare([Pair(f"t{i}", 0.0, float(i == 0)) for i in range(10)])
    assert found.low == 0.0
    assert e_process([1.0] + [0.0] * 9).verdict is Verdict.INDECISIVE


def test_scores_outside_0_to_1_are_refused() -> None:
    with pytest.raises(StatisticsDomain):
        compare([Pair("a", 0.0, 1.5)])


@pytest.mark.parametrize(
    ("total", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (0, 0, 0.0, 1.0)],
)
def test_wilson_interval(total: float, n: int, low: float, high: float) -> None:
    assert wilson_interval(total, n) == pytest.approx((low, high), abs=1e-4)


def test_wilson_refuses_more_passes_than_scores() -> None:
    with pytest.raises(StatisticsDomain):
        wilson_interval(3, 2)
