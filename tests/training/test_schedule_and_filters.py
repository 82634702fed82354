"""Learning rate, lambda schedule and the quality filters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.builders import make_row
from training.errors import ConfigurationError
from training.filters import FilterSpec, apply_filters, incorrect_kept
from training.schedule import CoefficientSchedule, RateKind, RateSpec, learning_rate
from training.types import TurnCounts


def test_the_rate_warms_up_and_decays_to_its_floor() -> None:
    spec = RateSpec(base=1.0, kind=RateKind.LINEAR, warmup_steps=2, horizon_steps=6, floor=0.2)
    rates = [learning_rate(step, spec) for step in (0, 1, 2, 4, 6, 9)]
    assert rates == pytest.approx([0.5, 1.0, 1.0, 0.6, 0.2, 0.2])


def test_cosine_is_half_way_down_at_half_time() -> None:
    spec = RateSpec(base=2.0, kind=RateKind.COSINE, horizon_steps=10)
    assert [learning_rate(s, spec) for s in (0, 5, 10)] == pytest.approx([2.0, 1.0, 0.0])


@given(step=st.integers(0, 20), horizon=st.integers(1, 20), longer=st.integers(0, 20))
def test_a_longer_horizon_never_lowers_the_rate(step: int, horizon: int, longer: int) -> None:
    spec = RateSpec(base=1.0, kind=RateKind.LINEAR, horizon_steps=horizon)
    extended = replace(spec, horizon_steps=horizon + longer)
    assert learning_rate(step, extended) >= learning_rate(step, spec)


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="step_decay"):
        CoefficientSchedule.from_mapping({"schedule": "zigzag", "initial": 1})


@given(
    theta=st.fractions(min_value="1/100", max_value=1, max_denominator=100),
    correct=st.integers(0, 20),
    incorrect=st.integers(0, 50),
)
def test_the_kept_share_of_correct_rollouts_never_falls_below_theta(
    theta: object, correct: int, incorrect: int
) -> None:
    from fractions import Fraction

    assert isinstance(theta, Fraction)
    decimal = round(float(theta), 2)
    kept = incorrect_kept(theta=decimal, correct=correct, incorrect=incorrect)
    assert 0 <= kept <= incorrect
    if correct and decimal:
        assert Fraction(correct, correct + kept) >= Fraction(str(decimal))


def test_exact_arithmetic_keeps_the_rollout_that_floating_point_loses() -> None:
    assert incorrect_kept(theta=0.8, correct=4, incorrect=12) == 1


def test_filters_clear_the_environment_term_only() -> None:
    counts = TurnCounts(turns=4, parse_errors=1, clean_turns=2)
    rows = [
        replace(make_row("AE", rollout="good", reward=1.0), quality=counts),
        replace(make_row("AE", rollout="bad", reward=0.0), quality=replace(counts, parse_errors=4)),
    ]
    kept = apply_filters(rows, FilterSpec(min_valid_tool_call_share=0.75))
    assert [row.trains_env for row in kept] == [True, False]
    assert kept[1].reward == 0.0


def test_correct_rollouts_stay_and_the_first_incorrect_ones() -> None:
    rows = [make_row("AE", rollout=str(n), reward=float(n == 2)) for n in range(4)]
    kept = apply_filters(rows, FilterSpec(min_correct_share=0.5))
    assert [row.trains_env for row in kept] == [True, False, True, False]
