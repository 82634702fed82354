"""Group advantages: definitions, and what must hold for any rewards."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.credit import group_advantages
from training.types import AdvantageMode, AdvantageSpec, GroupOfOne

REWARDS = st.lists(
    st.one_of(st.none(), st.floats(-10, 10, allow_nan=False)), min_size=1, max_size=12
)
MODES = st.sampled_from(
    [
        AdvantageMode.CENTRE,
        AdvantageMode.STD,
        AdvantageMode.STD_POPULATION,
        AdvantageMode.LEAVE_ONE_OUT,
    ]
)


def one_group(rewards: list[float | None], **options: object) -> list[float | None]:
    spec = AdvantageSpec(**options)  # type: ignore[arg-type] # options are checked by the class
    return group_advantages(groups=["g"] * len(rewards), rewards=rewards, spec=spec)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (AdvantageMode.CENTRE, [0.75, -0.25, -0.25, -0.25]),
        (AdvantageMode.STD, [1.499997000006, -0.499999000002, -0.499999000002, -0.499999000002]),
        (AdvantageMode.LEAVE_ONE_OUT, [1.0, -1 / 3, -1 / 3, -1 / 3]),
        (AdvantageMode.NONE, [1.0, 0.0, 0.0, 0.0]),
    ],
)
def test_modes_follow_their_definitions(mode: AdvantageMode, expected: list[float]) -> None:
    assert one_group([1.0, 0.0, 0.0, 0.0], mode=mode) == pytest.approx(expected, abs=1e-12)


def test_no_spread_gives_exactly_zero() -> None:
    # The mean of three tenths is not a tenth in floating point.
    assert one_group([0.1, 0.1, 0.1], mode=AdvantageMode.STD) == [0.0, 0.0, 0.0]


def test_a_group_of_one_gives_zero_unless_told_otherwise() -> None:
    assert one_group([1.0]) == [0.0]
    std = one_group([1.0], mode=AdvantageMode.STD, group_of_one=GroupOfOne.REWARD)
    assert std == [1.0 / (1.0 + 1e-6)]


def test_a_missing_or_nan_reward_is_masked_and_leaves_the_statistics_alone() -> None:
    assert one_group([1.0, None, math.nan, 0.0]) == [0.5, None, None, -0.5]


@given(rewards=REWARDS, mode=MODES)
def test_advantages_of_a_group_add_up_to_nothing(
    rewards: list[float | None], mode: AdvantageMode
) -> None:
    values = [v for v in one_group(rewards, mode=mode) if v is not None]
    assert math.fsum(values) == pytest.approx(0.0, abs=1e-6 * max(1.0, *map(abs, values), 1.0))


@given(rewards=REWARDS, mode=MODES, seed=st.randoms())
def test_order_and_other_groups_do_not_matter(
    rewards: list[float | None], mode: AdvantageMode, seed: object
) -> None:
    import random

    assert isinstance(seed, random.Random)
    order = list(range(len(rewards)))
    seed.shuffle(order)
    spec = AdvantageSpec(mode=mode)
    plain = one_group(rewards, mode=mode)
    mixed = group_advantages(
        groups=["g"] * len(rewards) + ["other"] * 2,
        rewards=[*(rewards[i] for i in order), 5.0, -5.0],
        spec=spec,
    )
    assert [mixed[order.index(i)] for i in range(len(rewards))] == pytest.approx(plain, abs=1e-9)
