"""Groups, all-pass and sequences: what they make of verdicts, and what is graded at all."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rubrics.aggregate import aggregate
from rubrics.codec import content_hash, from_json, to_json
from rubrics.errors import RubricInvalid
from rubrics.grade import grade, grade_async, score
from rubrics.types import Aggregation, Criterion, Group, RubricSpec, State, Verdict
from tests.rubrics.build import criterion, rubric, transcript

ALL, SEQ = Aggregation.ALL_PASS, Aggregation.SEQUENTIAL
YES = {"kind": "exact", "params": {"expected": "42"}}
NO = {"kind": "exact", "params": {"expected": "43"}}
BROKEN = {"kind": "cost", "params": {"max": 1}, "scope": "trajectory"}
"""The test's transcript does not say what it cost."""


def made(*items: dict[str, Any], **changes: Any) -> RubricSpec:
    criteria = [{"id": f"c{i}", **item} for i, item in enumerate(items)]
    return from_json({"criteria": criteria, **changes})


def outcome(spec: RubricSpec) -> tuple[State, float | None]:
    result, _ = score(spec, transcript())
    return result.state, result.value


def test_all_pass_is_one_or_zero_and_a_known_failure_outweighs_an_error() -> None:
    assert outcome(made(YES, YES, aggregation="all_pass")) == (State.SCORED, 1.0)
    assert outcome(made(YES, NO, BROKEN, aggregation="all_pass")) == (State.SCORED, 0.0)
    assert outcome(made(YES, BROKEN, aggregation="all_pass")) == (State.ERRORED, None)


def test_a_sequence_stops_where_it_fails_and_says_so() -> None:
    spec = made(YES, NO, YES, aggregation="sequential")
    verdicts = grade(spec, transcript())
    assert [v.state for v in verdicts] == [State.SCORED, State.SCORED, State.NOT_APPLICABLE]
    assert "c1 before it was not passed" in verdicts[2].reason
    assert aggregate(spec, verdicts).value == 0.0
    assert outcome(made(YES, YES, aggregation="sequential")) == (State.SCORED, 1.0)
    assert outcome(made(BROKEN, YES, aggregation="sequential"))[0] is State.ERRORED


def test_a_sequence_gives_the_value_of_its_last() -> None:
    near = {"kind": "similarity", "params": {"expected": "4"}}
    value = outcome(made(YES, near, aggregation="sequential"))[1]
    assert value == pytest.approx(2 / 3)


def test_a_group_counts_as_one() -> None:
    groups = [{"id": "g", "weight": 3, "aggregation": "all_pass"}]
    spec = made(YES | {"group": "g"}, NO | {"group": "g"}, YES, groups=groups)
    assert outcome(spec) == (State.SCORED, 0.25)
    # A sequence in a group leaves the others alone.
    groups = [{"id": "g", "aggregation": "sequential"}]
    spec = made(NO | {"group": "g"}, YES, YES | {"group": "g"}, groups=groups)
    states = [v.state for v in grade(spec, transcript())]
    assert states == [State.SCORED, State.SCORED, State.NOT_APPLICABLE]
    assert outcome(spec) == (State.SCORED, 0.5)


def test_a_group_that_errored_is_left_out_and_counted_against_coverage() -> None:
    groups = [{"id": "g", "weight": 1}]
    spec = made(BROKEN | {"group": "g"}, YES | {"weight": 9}, groups=groups)
    assert outcome(spec) == (State.SCORED, 1.0)
    assert outcome(made(BROKEN | {"group": "g"}, YES, groups=[{"id": "g", "weight": 9}])) == (
        State.ERRORED,
        None,
    )


def test_waiting_kinds_are_graded_in_the_same_order() -> None:
    spec = made(YES, NO, YES, aggregation="sequential")
    waited = asyncio.run(grade_async(spec, transcript(), services=None))  # type: ignore[arg-type]
    assert waited == grade(spec, transcript())


def test_groups_survive_json_and_bad_ones_are_named() -> None:
    spec = made(
        YES | {"group": "g"}, groups=[{"id": "g", "name": "G", "aggregation": "sequential"}]
    )
    assert content_hash(from_json(to_json(spec))) == content_hash(spec)
    with pytest.raises(RubricInvalid, match=r"criteria\[0\].group: 'h'; accepts g"):
        made(YES | {"group": "h"}, YES | {"group": "g"}, groups=[{"id": "g"}])
    with pytest.raises(RubricInvalid, match=r"groups\[0\].weight"):
        made(YES | {"group": "g"}, groups=[{"id": "g", "weight": 11}])
    with pytest.raises(RubricInvalid, match="no criterion that can be earned"):
        made(YES, groups=[{"id": "g"}])


@st.composite
def grouped(draw: st.DrawFn) -> tuple[RubricSpec, list[Verdict]]:
    aggregations = st.sampled_from(list(Aggregation))
    groups = tuple(
        Group(f"g{i}", aggregation=draw(aggregations), weight=draw(st.integers(1, 10)))
        for i in range(2)
    )
    names = ["", *(group.id for group in groups)]
    criteria: tuple[Criterion, ...] = tuple(
        criterion(id=f"c{i}", weight=draw(st.integers(1, 10)), group=draw(st.sampled_from(names)))
        for i in range(draw(st.integers(1, 7)))
    )
    verdicts = []
    for item in criteria:
        state = draw(st.sampled_from([State.SCORED, State.ERRORED, State.NOT_APPLICABLE]))
        value = draw(st.floats(0, 1)) if state is State.SCORED else None
        verdicts.append(Verdict(item.id, state, value, "because"))
    return rubric(*criteria, groups=groups, aggregation=draw(aggregations)), verdicts


@given(grouped())
def test_an_error_never_becomes_a_number_of_its_own(
    case: tuple[RubricSpec, list[Verdict]],
) -> None:
    """Deciding what errored, in either way, brackets what was said without it."""
    spec, verdicts = case
    said = aggregate(spec, verdicts)
    if spec.aggregation is Aggregation.WEIGHTED_MEAN or said.value is None:
        return
    values = [
        aggregate(
            spec,
            [replace(v, state=State.SCORED, value=x) if v.value is None else v for v in verdicts],
        ).value
        for x in (0.0, 1.0)
        if not any(v.state is State.NOT_APPLICABLE for v in verdicts)
    ]
    groups_are_strict = all(g.aggregation is not Aggregation.WEIGHTED_MEAN for g in spec.groups)
    if spec.aggregation is ALL and groups_are_strict and values:
        assert said.value in values


@given(grouped())
def test_everything_not_applicable_is_not_applicable(
    case: tuple[RubricSpec, list[Verdict]],
) -> None:
    spec, verdicts = case
    none = [replace(v, state=State.NOT_APPLICABLE, value=None) for v in verdicts]
    assert aggregate(spec, none).state is State.NOT_APPLICABLE


@given(grouped())
def test_one_group_of_all_is_the_rubric_itself(case: tuple[RubricSpec, list[Verdict]]) -> None:
    spec, verdicts = case
    plain = replace(spec, groups=(), criteria=tuple(replace(c, group="") for c in spec.criteria))
    whole = replace(
        spec,
        aggregation=Aggregation.WEIGHTED_MEAN,
        groups=(Group("all", aggregation=spec.aggregation),),
        criteria=tuple(replace(c, group="all") for c in spec.criteria),
    )
    a, b = aggregate(plain, verdicts), aggregate(whole, verdicts)
    assert (a.state, a.value) == (b.state, b.value)
