from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubrics.aggregate import aggregate, is_passed
from rubrics.errors import VerdictInvalid
from rubrics.types import Criterion, RubricSpec, State, Verdict
from tests.rubrics.build import criterion, rubric

values = st.floats(0.0, 1.0)


@st.composite
def verdicts_of(draw: st.DrawFn, item: Criterion, states: tuple[State, ...]) -> Verdict:
    state = draw(st.sampled_from(states))
    value = draw(values) if state is State.SCORED else None
    return Verdict(item.id, state, value, "because")


@st.composite
def graded(
    draw: st.DrawFn, states: tuple[State, ...] = tuple(State)
) -> tuple[RubricSpec, list[Verdict]]:
    n = draw(st.integers(1, 6))
    criteria = tuple(
        criterion(
            id=f"c{i}",
            weight=draw(st.integers(1, 10)),
            required=draw(st.booleans()),
            negative=i > 0 and draw(st.booleans()),
        )
        for i in range(n)
    )
    return rubric(*criteria), [draw(verdicts_of(item, states)) for item in criteria]


@given(graded(), st.randoms())
def test_the_order_of_verdicts_is_of_no_effect(case, random) -> None:  # type: ignore[no-untyped-def]
    spec, verdicts = case
    shuffled = list(verdicts)
    random.shuffle(shuffled)
    assert aggregate(spec, shuffled) == aggregate(spec, verdicts)


@given(graded())
def test_counts_cover_all_criteria_and_a_number_means_scored(case) -> None:  # type: ignore[no-untyped-def]
    spec, verdicts = case
    score = aggregate(spec, verdicts)
    n = score.n_scored + score.n_errored + score.n_not_applicable + score.n_pending
    assert n == len(spec.criteria)
    assert (score.value is not None) == (score.state is State.SCORED)
    if score.state in (State.ERRORED, State.NOT_APPLICABLE):
        assert score.reason


@given(graded(states=(State.SCORED, State.NOT_APPLICABLE)))
def test_not_applicable_criteria_leave_the_denominator(case) -> None:  # type: ignore[no-untyped-def]
    spec, verdicts = case
    kept = [v for v in verdicts if v.state is State.SCORED]
    ids = {v.criterion for v in kept}
    smaller = replace(spec, criteria=tuple(c for c in spec.criteria if c.id in ids))
    assert aggregate(spec, verdicts).value == aggregate(smaller, kept).value


@given(graded(states=(State.SCORED,)), st.integers(0, 5), values)
def test_more_of_a_good_thing_never_lowers_a_score(case, which, value) -> None:  # type: ignore[no-untyped-def]
    spec, verdicts = case
    which %= len(verdicts)
    raised = [
        replace(v, value=max(v.value or 0.0, value)) if i == which else v
        for i, v in enumerate(verdicts)
    ]
    before, after = aggregate(spec, verdicts).value, aggregate(spec, raised).value
    assert before is not None
    assert after is not None
    assert after <= before if spec.criteria[which].negative else after >= before


@given(st.lists(st.tuples(st.integers(1, 5), values), min_size=1, max_size=5))
def test_doubling_every_weight_changes_nothing(pairs: list[tuple[int, float]]) -> None:
    def value(factor: int) -> float | None:
        criteria = [criterion(id=f"c{i}", weight=w * factor) for i, (w, _) in enumerate(pairs)]
        verdicts = [Verdict(f"c{i}", State.SCORED, v) for i, (_, v) in enumerate(pairs)]
        return aggregate(rubric(*criteria), verdicts).value

    assert value(1) == value(2)


def test_the_mean_is_weighted() -> None:
    spec = rubric(criterion(id="a", weight=3), criterion(id="b", weight=1))
    score = aggregate(spec, [Verdict("a", State.SCORED, 1.0), Verdict("b", State.SCORED, 0.0)])
    assert score.value == 0.75


def test_a_penalty_is_subtracted_and_ends_at_zero() -> None:
    spec = rubric(criterion(id="a", weight=2), criterion(id="bad", weight=5, negative=True))
    good = Verdict("a", State.SCORED, 1.0)
    assert aggregate(spec, [good, Verdict("bad", State.SCORED, 0.2)]).value == 0.5
    assert aggregate(spec, [good, Verdict("bad", State.SCORED, 1.0)]).value == 0.0


def test_a_required_criterion_that_is_not_passed_makes_the_score_zero() -> None:
    spec = rubric(criterion(id="a", weight=10), criterion(id="must", required=True, threshold=0.8))
    score = aggregate(spec, [Verdict("a", State.SCORED, 1.0), Verdict("must", State.SCORED, 0.7)])
    assert (score.value, score.failed_required) == (0.0, ("must",))


def test_a_required_criterion_that_errored_makes_the_score_errored() -> None:
    spec = rubric(criterion(id="a", weight=10), criterion(id="must", required=True))
    errored = Verdict("must", State.ERRORED, None, "the judge timed out")
    score = aggregate(spec, [Verdict("a", State.SCORED, 1.0), errored])
    assert score.state is State.ERRORED
    assert "the judge timed out" in score.reason


def test_another_errored_criterion_is_left_out_and_counted() -> None:
    spec = rubric(criterion(id="a"), criterion(id="b"))
    errored = Verdict("b", State.ERRORED, None, "429")
    score = aggregate(spec, [Verdict("a", State.SCORED, 0.5), errored])
    assert (score.state, score.value, score.n_errored) == (State.SCORED, 0.5, 1)


def test_a_small_rest_never_stands_for_an_errored_whole() -> None:
    spec = rubric(criterion(id="a", weight=10), criterion(id="b", weight=1))
    errored = Verdict("a", State.ERRORED, None, "429")
    score = aggregate(spec, [errored, Verdict("b", State.SCORED, 1.0)])
    assert (score.state, score.value) == (State.ERRORED, None)


def test_a_missing_verdict_makes_the_score_pending() -> None:
    spec = rubric(criterion(id="a"), criterion(id="b"))
    assert aggregate(spec, [Verdict("a", State.SCORED, 1.0)]).state is State.PENDING


def test_nothing_applicable_is_not_a_zero() -> None:
    spec = rubric(criterion(id="a"), criterion(id="bad", negative=True))
    verdicts = [
        Verdict("a", State.NOT_APPLICABLE, None, "another family"),
        Verdict("bad", State.SCORED, 0.0),
    ]
    assert aggregate(spec, verdicts).state is State.NOT_APPLICABLE


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.01, 1.01, None])
def test_no_verdict_has_such_a_value(value: float | None) -> None:
    with pytest.raises(VerdictInvalid):
        Verdict("a", State.SCORED, value)


def test_a_failure_without_a_reason_or_with_a_number_cannot_be_built() -> None:
    with pytest.raises(VerdictInvalid, match="needs a reason"):
        Verdict("a", State.ERRORED)
    with pytest.raises(VerdictInvalid, match="has no value"):
        Verdict("a", State.ERRORED, 0.0, "broke")


def test_unknown_and_repeated_verdicts_are_refused() -> None:
    one = Verdict("c", State.SCORED, 1.0)
    with pytest.raises(VerdictInvalid, match="two verdicts"):
        aggregate(rubric(criterion()), [one, one])
    with pytest.raises(VerdictInvalid, match="no such criterion"):
        aggregate(rubric(criterion()), [Verdict("other", State.SCORED, 1.0)])


def test_a_negative_criterion_is_passed_below_its_threshold() -> None:
    bad = criterion(negative=True)
    assert is_passed(bad, Verdict("c", State.SCORED, 0.4)) is True
    assert is_passed(bad, Verdict("c", State.SCORED, 0.5)) is False
    assert is_passed(bad, Verdict("c", State.ERRORED, None, "broke")) is None
