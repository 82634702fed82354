from __future__ import annotations

import random
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.engines.factorial.design import balanced
from optimizer.engines.factorial.planning import (
    Observation,
    Sizes,
    active,
    fitted,
    next_wave,
    with_leaders,
)
from optimizer.engines.factorial.pool import Bundle, Pool
from optimizer.gaussian import Row, fit
from tests.optimizer.build import add, say

RULES = tuple(
    say(text, operator="instructions.pool", group="style") for text in ("rules", "format")
)


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    edits = (
        *(add(str(i)) for i in range(draw(st.integers(0, 4)))),
        *RULES[: draw(st.integers(0, 2))],
        *(say(f"s{i}") for i in range(draw(st.integers(1, 4)))),
    )
    plain = Pool(edits, (), draw(st.integers(1, 4)))
    leaders = draw(st.sets(st.sampled_from(plain.others), max_size=3))
    return Pool(edits, tuple(sorted(leaders)), plain.max_demonstrations)


def is_possible(pool: Pool, bundle: Bundle) -> bool:
    n = sum(i in pool.demonstrations for i in bundle)
    return n <= pool.max_demonstrations and all(
        sum(i in factor for i in bundle) <= 1 for factor in pool.factors
    )


def all_bundles(pool: Pool) -> list[Bundle]:
    positions = range(len(pool.edits))
    return [
        bundle
        for size in range(len(pool.edits) + 1)
        for bundle in combinations(positions, size)
        if is_possible(pool, bundle)
    ]


@given(pools(), st.integers(0, 2**32), st.integers(0, 8))
def test_the_best_bundle_is_the_best_of_all(pool: Pool, seed: int, most: int) -> None:
    draw = random.Random(seed)
    theta = [draw.gauss(0, 0.1) for _ in pool.prior_variance]

    def value(bundle: Bundle) -> float:
        return sum(theta[column] for column in pool.columns(bundle)) - theta[0]

    found = pool.best(theta, most=most)
    assert is_possible(pool, found)
    within = [b for b in all_bundles(pool) if sum(i in pool.others for i in b) <= most]
    assert value(found) == pytest.approx(max(map(value, within)))


@given(pools(), st.integers(1, 12), st.integers(0, 2**62), st.booleans())
def test_every_planned_bundle_is_possible(pool: Pool, n: int, seed: int, is_early: bool) -> None:
    seen = tuple(Observation(b, f"t{i}", 0.5) for i, b in enumerate(balanced(pool, n, seed)))
    for observations in ((), seen):
        wave = next_wave(pool, observations, ((),), Sizes(n, 3, is_early), seed)
        assert len(wave) == n
        for bundle in wave:
            assert is_possible(pool, bundle)
            assert list(bundle) == sorted(set(bundle))


def test_the_first_wave_of_demonstrations_is_balanced() -> None:
    pool = Pool((*(add(str(i)) for i in range(8)), *RULES))
    blocks = balanced(pool, 17, 0)
    uses = Counter(i for block in blocks for i in block)
    assert blocks[0] == ()
    assert max(uses[i] for i in range(8)) - min(uses[i] for i in range(8)) <= 1
    assert sum(any(i >= 8 for i in block) for block in blocks) == pytest.approx(8, abs=1)
    sizes = Counter(sum(i < 8 for i in block) for block in blocks[1:])
    assert sizes == {1: 4, 2: 4, 3: 4, 4: 4}


def test_an_edit_that_harms_leaves_the_trial_and_one_that_helps_leads() -> None:
    pool = Pool(tuple(say(f"rule {i}") for i in range(8)))
    draw = random.Random(1)
    seen = []
    for i in range(200):
        bundle = tuple(k for k in range(8) if draw.random() < 0.5)
        rate = 0.4 + 0.35 * (0 in bundle) - 0.35 * (1 in bundle)
        seen.append(Observation(bundle, f"t{i % 20}", float(draw.random() < rate)))
    on_trial = active(pool, tuple(seen), 14)
    assert 0 in on_trial
    assert 1 not in on_trial
    assert 0 in with_leaders(pool, tuple(seen), 2).leaders


def test_a_pair_that_helps_only_together_is_seen() -> None:
    pool = Pool(tuple(say(f"rule {i}") for i in range(4)), leaders=(0, 1, 2))
    seen = []
    for i in range(240):
        bundle = tuple(k for k in range(4) if i >> k & 1)
        score = 0.9 if {0, 1} <= set(bundle) else 0.3
        seen.append(Observation(bundle, f"t{i % 15}", score))
    known = fitted(pool, tuple(seen))
    (both,) = (
        c
        for c in pool.columns((0, 1))
        if c not in {*pool.columns((0,)), *pool.columns((1,))} and c >= 1 + 4 + len(pool.sizes)
    )
    assert known.mean[both] > 0.1
    assert set(pool.best(known.mean)) >= {0, 1}


@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(0, 30))
def test_the_posterior_equals_that_of_the_dense_model(seed: int, k: int, n: int) -> None:
    draw = random.Random(seed)
    prior = [draw.uniform(0.01, 1) for _ in range(k)]
    rows = [
        Row(
            tuple(j for j in range(k) if draw.random() < 0.5),
            draw.choice("abc"),
            draw.random(),
        )
        for _ in range(n)
    ]
    found = fit(rows, prior, group_variance=0.06, noise=0.2)
    x = np.zeros((n, k + 3))
    for r, row in enumerate(rows):
        x[r, list(row.columns)] = 1
        x[r, k + "abc".index(str(row.group))] = 1
    precision = np.diag([1 / v for v in prior] + [1 / 0.06] * 3) + x.T @ x / 0.2
    covariance = np.linalg.inv(precision)
    mean = covariance @ x.T @ np.array([row.y for row in rows]) / 0.2
    assert found.mean == pytest.approx(tuple(mean[:k]), abs=1e-9)
    assert np.array(found.covariance) == pytest.approx(covariance[:k, :k], abs=1e-9)


def test_draws_have_the_posteriors_spread() -> None:
    rows = [Row((0, 1), "a", 1.0), Row((0,), "a", 0.0), Row((0, 2), "b", 0.5)]
    found = fit(rows, [1.0, 0.5, 0.25], group_variance=0.06, noise=0.2)
    draws = np.array([found.draw(random.Random(i)) for i in range(4000)])
    assert draws.mean(axis=0) == pytest.approx(np.array(found.mean), abs=0.05)
    assert np.cov(draws.T) == pytest.approx(np.array(found.covariance), abs=0.05)
