"""Samplers and their arithmetic, without a database."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.environments.curriculum.beta import Beta
from orchestrator.environments.curriculum.samplers import (
    Known,
    SamplerSettings,
    sequential,
    signal,
    uniform,
    weighed,
)

counts = st.floats(0, 50)
tasks_lists = st.lists(
    st.builds(
        Known,
        key=st.text("abcdef", min_size=1, max_size=4),
        group=st.sampled_from(["", "red", "green"]),
        successes=counts,
        failures=counts,
        cost=st.floats(0, 1e5),
    ),
    min_size=1,
    max_size=20,
    unique_by=lambda task: task.key,
)
sampler_settings = st.builds(
    SamplerSettings,
    group_size=st.integers(2, 16),
    prior_strength=st.floats(0.1, 10),
    floor=st.floats(0, 1),
    by=st.sampled_from(["task", "group"]),
)


def test_the_signal_of_a_certain_rate_is_the_chance_of_a_mixed_group() -> None:
    for rate, group in ((0.5, 2), (0.1, 8), (0.9, 4)):
        sharp = Beta(1e9 * rate, 1e9 * (1 - rate))
        assert sharp.signal(group) == pytest.approx(1 - rate**group - (1 - rate) ** group, abs=1e-6)


def test_the_signal_is_a_mean_over_the_distribution() -> None:
    rng = random.Random(1)
    beta, group = Beta(1.5, 4.0), 8
    rates = [rng.betavariate(beta.a, beta.b) for _ in range(60_000)]
    mean = sum(1 - p**group - (1 - p) ** group for p in rates) / len(rates)
    assert beta.signal(group) == pytest.approx(mean, abs=0.005)


@settings(deadline=None)
@given(a=st.floats(0.05, 200), b=st.floats(0.05, 200), group=st.integers(2, 32))
def test_a_signal_is_a_chance(a: float, b: float, group: int) -> None:
    assert 0 <= Beta(a, b).signal(group) <= 1
    assert Beta(a, b).signal(group) == pytest.approx(Beta(b, a).signal(group))


@settings(deadline=None)
@given(a=st.floats(0.3, 80), b=st.floats(0.3, 80), level=st.floats(0.5, 0.99))
def test_an_interval_holds_its_level(a: float, b: float, level: float) -> None:
    beta = Beta(a, b)
    low, high = beta.interval(level)
    assert 0 <= low < high <= 1
    assert beta.cumulative(high) - beta.cumulative(low) == pytest.approx(level, abs=1e-6)


def test_known_quantiles() -> None:
    assert Beta(1, 1).interval(0.9) == pytest.approx((0.05, 0.95))
    assert Beta(2, 2).quantile(0.5) == pytest.approx(0.5)
    # 1 − (1−x)⁹ = 0.95
    assert Beta(1, 9).quantile(0.95) == pytest.approx(1 - 0.05 ** (1 / 9))


@settings(deadline=None)
@given(tasks=tasks_lists, chosen=sampler_settings)
def test_probabilities_add_up_and_keep_the_floor(
    tasks: list[Known], chosen: SamplerSettings
) -> None:
    views = weighed(tasks, chosen)
    assert sum(v.probability for v in views) == pytest.approx(1)
    assert all(v.probability >= chosen.floor / len(tasks) - 1e-12 for v in views)


@settings(deadline=None)
@given(
    tasks=tasks_lists,
    chosen=sampler_settings,
    seed=st.integers(0, 2**31),
    n_draws=st.integers(0, 100),
    n=st.integers(1, 25),
)
def test_a_draw_is_decided_by_its_arguments(
    tasks: list[Known], chosen: SamplerSettings, seed: int, n_draws: int, n: int
) -> None:
    def all_draws(order: list[Known]) -> list[list[str]]:
        return [
            uniform(order, seed=seed, n_draws=n_draws, n=n),
            signal(order, chosen, seed=seed, n_draws=n_draws, n=n),
        ]

    drawn = all_draws(tasks)
    assert drawn == all_draws(tasks)
    assert drawn[0] == all_draws(tasks[::-1])[0], "the order of the tasks does not matter"
    in_order = sequential(tasks, seed=seed, n_draws=n_draws, n=n)
    for keys in (*drawn, in_order):
        assert len(set(keys)) == len(keys) <= n
        assert set(keys) <= {task.key for task in tasks}
    assert all(len(keys) == min(n, len(tasks)) for keys in drawn)


@settings(deadline=None)
@given(n=st.integers(1, 7), seed=st.integers(0, 99))
def test_sequential_leaves_no_task_out_in_a_pass(n: int, seed: int) -> None:
    tasks = [Known(f"t{i}", "red" if i % 2 else "green") for i in range(14)]
    seen: list[str] = []
    while len(seen) < 14:
        seen.extend(sequential(tasks, seed=seed, n_draws=len(seen), n=n))
    assert len(set(seen[:14])) == 14


def test_what_always_ends_alike_is_drawn_least_and_what_is_cheap_more() -> None:
    tasks = [
        Known("solved", successes=40, failures=0, cost=100),
        Known("hopeless", successes=0, failures=40, cost=100),
        Known("mixed", successes=20, failures=20, cost=100),
        Known("mixed, dear", successes=20, failures=20, cost=300),
    ]
    by_key = {v.key: v.probability for v in weighed(tasks, SamplerSettings(floor=0))}
    assert by_key["mixed"] > by_key["mixed, dear"] > by_key["solved"]
    assert by_key["mixed"] == pytest.approx(3 * by_key["mixed, dear"])
    assert by_key["hopeless"] < by_key["mixed"] / 3


def test_an_untried_task_is_believed_to_be_like_its_group() -> None:
    solved = [Known(f"s{i}", "easy", successes=20) for i in range(5)]
    mixed = [Known(f"m{i}", "mixed", successes=10, failures=10) for i in range(5)]
    views = weighed([*solved, *mixed, Known("new-easy", "easy"), Known("new-mixed", "mixed")],
                    SamplerSettings())  # fmt: skip
    found = {v.key: v for v in views}
    assert found["new-easy"].posterior.mean > 0.9
    assert found["new-easy"].probability < found["new-mixed"].probability


def test_by_group_a_large_group_is_not_drawn_more_for_its_size() -> None:
    tasks = [Known(f"a{i}", "large", 5, 5) for i in range(9)] + [Known("b", "small", 45, 45)]
    shares: Counter[str] = Counter()
    for view in weighed(tasks, SamplerSettings(by="group", floor=0)):
        shares[view.group] += view.probability  # type: ignore[assignment] # shares, not counts
    assert shares["large"] == pytest.approx(shares["small"])


@pytest.mark.parametrize(
    "wrong", [{"group_size": 1}, {"decay": 0}, {"floor": 2}, {"by": "x"}, {"speed": 1}]
)
def test_impossible_settings_are_named(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SamplerSettings.from_json(wrong)


def _informative_groups(kind: str, seed: int) -> int:
    """Groups of eight with different scores, in 40 steps of 4 tasks; most tasks never differ."""
    rng = random.Random(seed)
    rates = {f"t{i:02d}": rng.choice([0.0, 0.0, 0.0, 1.0, 0.5]) for i in range(60)}
    known = {key: Known(key) for key in rates}
    chosen, informative = SamplerSettings(), 0
    for step in range(40):
        arguments = {"seed": seed, "n_draws": 4 * step, "n": 4}
        tasks = list(known.values())
        keys = (
            signal(tasks, chosen, **arguments) if kind == "signal" else uniform(tasks, **arguments)
        )
        for key in keys:
            scores = [rng.random() < rates[key] for _ in range(8)]
            informative += 0 < sum(scores) < 8
            for score in scores:
                task = known[key]
                known[key] = replace(
                    task,
                    successes=task.successes * chosen.decay + score,
                    failures=task.failures * chosen.decay + (not score),
                )
    return informative


def test_signal_draws_more_tasks_that_tell_something_than_uniform() -> None:
    gains = [
        _informative_groups("signal", seed) / max(1, _informative_groups("uniform", seed))
        for seed in range(5)
    ]
    assert min(gains) > 1.2, gains
    assert sum(gains) / len(gains) > 1.5, gains
