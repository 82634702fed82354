from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.plateau import (
    Effect,
    HarnessOutlook,
    Next,
    TrainingRung,
    WeightsOutlook,
    expected_improvement,
    weigh,
)

OPEN = Effect(mean=0.02, sd=0.06, is_in=False)
KEPT = Effect(mean=0.08, sd=0.03, is_in=True)
SETTLED = Effect(mean=-0.10, sd=0.01, is_in=False)


def test_open_effects_speak_for_the_harness() -> None:
    advice = weigh(
        HarnessOutlook([OPEN] * 8, cost=500),
        WeightsOutlook([TrainingRung(0.0, 500), TrainingRung(0.01, 500)], cost=500),
    )
    assert advice.next is Next.HARNESS
    assert advice.reason.startswith("Harness next")
    assert "per 1,000 rollouts" in advice.reason


def test_settled_effects_speak_for_the_weights() -> None:
    advice = weigh(HarnessOutlook([KEPT, SETTLED], cost=500), WeightsOutlook([], cost=500))
    assert advice.next is Next.WEIGHTS
    assert advice.weights is not None
    assert advice.weights.low < advice.weights.gain < advice.weights.high


def test_price_decides_between_equal_gains() -> None:
    harness = HarnessOutlook([OPEN] * 3, cost=100)
    assert weigh(harness, WeightsOutlook([], cost=100_000)).next is Next.HARNESS
    assert weigh(HarnessOutlook([OPEN] * 3, cost=100_000), WeightsOutlook([], 100)).next is (
        Next.WEIGHTS
    )


def test_it_stops_when_neither_promises_a_point() -> None:
    flat = WeightsOutlook([TrainingRung(0.0, 500)] * 8, cost=500)
    advice = weigh(HarnessOutlook([SETTLED], cost=500), flat)
    assert advice.next is Next.STOP
    assert weigh(None, None).next is Next.STOP
    assert "not possible here" in weigh(None, flat).reason


def test_a_search_that_promised_too_much_is_believed_less() -> None:
    believed = weigh(HarnessOutlook([OPEN] * 4, 500), None)
    doubted = weigh(HarnessOutlook([OPEN] * 4, 500, estimated=0.2, certified=0.05), None)
    assert believed.harness is not None
    assert doubted.harness is not None
    assert doubted.harness.gain == pytest.approx(believed.harness.gain / 4)


def test_groups_that_do_not_differ_teach_nothing() -> None:
    rungs = [TrainingRung(0.1, 500)]
    full, half = (weigh(None, WeightsOutlook(rungs, 500, signal=s)).weights for s in (1.0, 0.5))
    assert full is not None
    assert half is not None
    assert half.gain == pytest.approx(full.gain / 2)


@given(st.floats(-1, 1), st.floats(1e-3, 1))
def test_expected_improvement_is_above_both_bounds(mean: float, sd: float) -> None:
    found = expected_improvement(mean, sd)
    assert found >= max(mean, 0.0) - 1e-12
    assert found <= max(mean, 0.0) + sd / math.sqrt(2 * math.pi) + 1e-12


@given(st.floats(0, 1), st.integers(0, 40))
def test_no_gain_is_larger_than_what_the_score_lacks(headroom: float, n: int) -> None:
    advice = weigh(HarnessOutlook([OPEN] * n, 500), WeightsOutlook([], 500), headroom=headroom)
    for outlook in (advice.harness, advice.weights):
        assert outlook is not None
        assert outlook.gain <= headroom
        assert outlook.high <= headroom
