"""Summaries of a judge, drift, and scores without some criteria; against other libraries."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import fisher_exact as scipy_fisher

from rubrics.aggregate import aggregate
from rubrics.agreement.binary import Confusion
from rubrics.agreement.chance import cohen_kappa, krippendorff_alpha
from rubrics.agreement.drift import Mark, by_time, by_version, fisher_exact, newest_change
from rubrics.agreement.summary import Judged, Unit, agreement_of, binary_alpha, kappa_of
from rubrics.codec import from_json
from rubrics.exclusion import aggregate_without
from rubrics.types import State, Verdict

PAIRS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60)
COUNT = st.integers(0, 40)
START = datetime(2026, 1, 1, tzinfo=UTC)


@given(PAIRS)
def test_kappa_of_counts_is_that_of_the_pairs(pairs: list[tuple[bool, bool]]) -> None:
    ours, other = kappa_of(Confusion.of(pairs)), cohen_kappa(pairs)
    if other is None:
        assert ours is None
    else:
        assert ours == pytest.approx(other, abs=1e-12)


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), max_size=5), max_size=30))
def test_alpha_of_counts_is_that_of_the_values(units: list[list[float]]) -> None:
    counts = [(unit.count(0.0), unit.count(1.0)) for unit in units]
    ours, other = binary_alpha(counts), krippendorff_alpha(units)
    if other is None:
        assert ours is None
    else:
        assert ours == pytest.approx(other, abs=1e-9)


@given(COUNT, COUNT, COUNT, COUNT)
def test_the_exact_test_is_that_of_scipy(a: int, b: int, c: int, d: int) -> None:
    assert fisher_exact(a, b, c, d) == pytest.approx(
        scipy_fisher([[a, b], [c, d]]).pvalue, abs=1e-9
    )


def units(tp: int, fn: int, fp: int, tn: int) -> list[Unit]:
    said = [(True, True)] * tp + [(True, False)] * fn + [(False, True)] * fp + [(False, False)] * tn
    return [Unit(i, person, judge) for i, (person, judge) in enumerate(said)]


def test_a_summary_has_everything_with_intervals_around_it() -> None:
    found = agreement_of(units(40, 5, 10, 45), Judged(500, 1000))
    assert found.kappa == pytest.approx(0.7)
    assert found.kappa_interval is not None
    assert found.kappa_interval.low < 0.7 < found.kappa_interval.high
    # Rogan and Gladen: (0.5 + 45/55 - 1) / (40/45 + 45/55 - 1)
    assert found.corrected == pytest.approx((0.5 + 45 / 55 - 1) / (40 / 45 + 45 / 55 - 1))
    assert found.corrected is not None and found.corrected_interval is not None
    assert found.corrected_interval.low < found.corrected < found.corrected_interval.high


def test_rollouts_of_one_task_do_not_count_as_many() -> None:
    apart = agreement_of(units(40, 5, 10, 45), Judged(1, 2)).kappa_interval
    joined = [Unit(unit.cluster // 10, unit.person, unit.judge) for unit in units(40, 5, 10, 45)]  # type: ignore[operator]
    together = agreement_of(joined, Judged(1, 2)).kappa_interval
    assert apart is not None and together is not None
    assert together.high - together.low > apart.high - apart.low


@pytest.mark.slow
def test_the_corrected_rate_covers_the_truth_about_as_often_as_it_says() -> None:
    """150 worlds: 60 % would be passed, the judge has TPR 0.9 and TNR 0.8."""
    draw = random.Random(5)
    n_in = 0
    for world in range(150):
        truths = [draw.random() < 0.6 for _ in range(600)]
        said = [draw.random() < (0.9 if truth else 0.2) for truth in truths]
        labelled = [Unit(i, truths[i], said[i]) for i in range(120)]
        interval = agreement_of(labelled, Judged(sum(said), 600), seed=world).corrected_interval
        n_in += interval is not None and interval.low <= 0.6 <= interval.high
    assert n_in / 150 >= 0.9


def test_what_labels_cannot_tell_is_none() -> None:
    alone = agreement_of([], Judged(0, 0))
    assert (alone.kappa, alone.kappa_interval, alone.corrected) == (None, None, None)
    all_passed = agreement_of(units(20, 0, 0, 0), Judged(20, 20))
    assert (all_passed.kappa, all_passed.corrected, all_passed.corrected_interval) == (
        None,
        None,
        None,
    )
    chance = agreement_of(units(5, 5, 5, 5), Judged(10, 20))
    assert (chance.kappa, chance.corrected) == (0.0, None)


def marks(*parts: tuple[str, int, int]) -> list[Mark]:
    """(version, agreed, missed) one after the other, an hour apart; half of them passed."""
    found: list[Mark] = []
    for version, agreed, missed in parts:
        for i in range(agreed + missed):
            person = i % 2 == 0
            at = START + timedelta(hours=len(found))
            found.append(Mark(at, version, person, person if i < agreed else not person))
    return found


def test_windows_are_in_order_and_a_small_rest_joins_the_last() -> None:
    windows = by_time(list(reversed(marks(("v1", 45, 0)))), size=20)
    assert [window.n for window in windows] == [20, 25]
    assert windows[0].end < windows[1].start
    assert [window.n for window in by_time(marks(("v1", 55, 0)), size=20)] == [20, 20, 15]
    assert by_time([]) == []


def test_a_judge_that_goes_bad_is_noticed_and_chance_is_not() -> None:
    change = newest_change(by_time(marks(("v1", 57, 3), ("v2", 8, 12)), size=20))
    assert change is not None and change.is_certain and change.is_worse
    steady = newest_change(by_time(marks(("v1", 57, 3), ("v1", 18, 2)), size=20))
    assert steady is not None and not steady.is_certain
    assert newest_change(by_time(marks(("v1", 20, 0)))) is None


def test_versions_stand_side_by_side() -> None:
    windows = by_version(marks(("v1", 10, 10), ("v2", 19, 1)))
    assert [(window.versions, window.n) for window in windows] == [(("v1",), 20), (("v2",), 20)]
    assert windows[0].agreement.value == 0.5
    assert windows[1].person_rate == 0.5
    assert (windows[1].kappa or 0) > (windows[0].kappa or 0)


SPEC = from_json(
    {
        "criteria": [
            {"id": "right", "kind": "environment_reward", "weight": 3},
            {"id": "polite", "kind": "exact", "weight": 1, "required": True},
            {"id": "rude", "kind": "exact", "negative": True, "weight": 2},
        ]
    }
)


def verdicts(right: float, polite: float, rude: float) -> list[Verdict]:
    values = {"right": right, "polite": polite, "rude": rude}
    return [Verdict(id, State.SCORED, value, "seen") for id, value in values.items()]


def test_a_criterion_that_is_left_out_changes_nothing_whatever_it_said() -> None:
    low = aggregate_without(SPEC, verdicts(0.5, 0.0, 0.0), {"polite": "kappa 0.1"})
    high = aggregate_without(SPEC, verdicts(0.5, 1.0, 0.0), {"polite": "kappa 0.1"})
    assert low == high
    assert (low.state, low.value, low.n_not_applicable) == (State.SCORED, 0.5, 1)
    assert aggregate(SPEC, verdicts(0.5, 0.0, 0.0)).value == 0.0


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_without_anything_left_out_it_is_the_score(a: float, b: float, c: float) -> None:
    given_ = verdicts(a, b, c)
    assert aggregate_without(SPEC, given_, {"unknown": ""}) == aggregate(SPEC, given_)


def test_an_errored_one_that_is_left_out_sinks_nothing() -> None:
    given_ = [v for v in verdicts(1.0, 1.0, 0.0) if v.criterion != "polite"]
    given_.append(Verdict("polite", State.ERRORED, None, "429"))
    assert aggregate(SPEC, given_).state is State.ERRORED
    assert aggregate_without(SPEC, given_, {"polite": "x"}).value == 1.0


def test_where_nothing_is_left_there_is_no_score() -> None:
    score = aggregate_without(SPEC, verdicts(1, 1, 0), {"right": "a", "polite": "b"})
    assert (score.state, score.value) == (State.NOT_APPLICABLE, None)
