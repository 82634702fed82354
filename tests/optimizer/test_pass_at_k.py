"""pass@k against its definition: the share of draws of k attempts in which one passes."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.errors import StatisticsDomain
from optimizer.statistics.pass_at_k import ks_for, pass_at_k

COUNTS = st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))


@given(st.lists(COUNTS, min_size=1, max_size=5), st.integers(1, 7))
def test_it_is_the_share_of_draws_in_which_one_passes(
    counts: list[tuple[int, int]], k: int
) -> None:
    units = []
    for n, passed in counts:
        draws = list(combinations([1] * passed + [0] * (n - passed), k))
        if draws:
            units.append(sum(any(draw) for draw in draws) / len(draws))
    found = pass_at_k(counts, k)
    assert found.tasks == len(units)
    assert found.left_out == len(counts) - len(units)
    if units:
        assert found.mean == pytest.approx(sum(units) / len(units))
        assert found.low is not None and found.high is not None and found.mean is not None
        assert 0.0 <= found.low <= found.mean <= found.high <= 1.0
        assert found.high > found.low
    else:
        assert found.mean is None


def test_tasks_without_a_score_are_no_failure() -> None:
    assert pass_at_k([(0, 0), (1, 1)], 1).mean == 1.0


@pytest.mark.parametrize(("counts", "k"), [([(1, 2)], 1), ([(1, 1)], 0), ([(2, -1)], 1)])
def test_what_cannot_be_is_refused(counts: list[tuple[int, int]], k: int) -> None:
    with pytest.raises(StatisticsDomain):
        pass_at_k(counts, k)


@pytest.mark.parametrize(
    ("attempts", "ks"),
    [
        ([], []),
        ([1, 1], [1]),
        ([2, 2, 2], [1, 2]),
        ([5, 5], [1, 2, 4, 5]),
        ([32] * 3, [1, 2, 4, 32]),
    ],
)
def test_ks_go_as_far_as_half_of_the_tasks(attempts: list[int], ks: list[int]) -> None:
    assert ks_for(attempts) == ks
