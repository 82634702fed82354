"""Boundaries of looks at growing data."""

from __future__ import annotations

import math

import pytest

from optimizer.errors import StatisticsDomain
from optimizer.statistics.looks import looks_at

EQUAL = (0.2, 0.4, 0.6, 0.8, 1.0)


def test_boundaries_are_those_of_the_books() -> None:
    """Jennison & Turnbull 2000, ρ = 2; one-sided 0.025 in five equal looks."""
    found = [look.z for look in looks_at(EQUAL, 0.025)]
    assert found == pytest.approx([3.0902, 2.7141, 2.4728, 2.2799, 2.1140], abs=5e-4)


@pytest.mark.parametrize("shares", [(0.4, 0.8, 1.0), (0.5, 1.0), (0.3, 0.35, 1.0), (1.0,)])
def test_all_looks_together_cross_with_probability_alpha(shares: tuple[float, ...]) -> None:
    """Against an integration by somebody else (scipy's multivariate normal)."""
    from scipy.stats import multivariate_normal

    looks = looks_at(shares, 0.025)
    for n in range(1, len(looks) + 1):
        cov = [[math.sqrt(min(a, b) / max(a, b)) for b in shares[:n]] for a in shares[:n]]
        normal = multivariate_normal(mean=[0.0] * n, cov=cov, allow_singular=True)
        crossed = 1 - normal.cdf([look.z for look in looks[:n]])
        assert crossed == pytest.approx(0.025 * shares[n - 1] ** 2, abs=2e-5)
        assert looks[n - 1].spent == pytest.approx(0.025 * shares[n - 1] ** 2)


def test_one_look_gets_everything() -> None:
    (look,) = looks_at((1.0,), 0.025)
    assert look.level == pytest.approx(0.025)


@pytest.mark.parametrize("shares", [(), (0.5,), (0.5, 0.5, 1.0), (0.6, 0.4, 1.0), (0.0, 1.0)])
def test_shares_rise_to_one(shares: tuple[float, ...]) -> None:
    with pytest.raises(StatisticsDomain, match=r"looks|rise to 1"):
        looks_at(shares, 0.025)


def test_alpha_is_one_sided() -> None:
    with pytest.raises(StatisticsDomain, match="one-sided"):
        looks_at((1.0,), 0.5)
