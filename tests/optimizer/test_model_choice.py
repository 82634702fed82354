from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.engines.contract import Candidate
from optimizer.errors import SearchInvalid
from optimizer.model_choice import pareto, with_model
from tests.optimizer.build import put, say
from tests.optimizer.playing import plan

POINTS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=12)


@given(POINTS)
def test_the_front_is_what_nobody_dominates(points: list[tuple[int, int, int]]) -> None:
    front = pareto([tuple(map(float, p)) for p in points])
    for point, is_on in zip(points, front, strict=True):
        worse = [
            o
            for o in points
            if o != point and o[0] >= point[0] and o[1] <= point[1] and o[2] <= point[2]
        ]
        assert is_on == (not worse)
    assert not points or any(front)


def test_a_model_takes_the_place_of_the_one_before() -> None:
    rule = say("Look twice.")
    first, second = put("model", "small"), put("model", "large")
    candidate = with_model(with_model(Candidate((rule,)), first), second)
    assert candidate.edits == (rule, second)


def test_limits_are_named() -> None:
    models = (put("model", "small"),)
    with pytest.raises(SearchInvalid, match="margin"):
        plan(models=models, model_margin=0.0, model_rollouts=10, model_pairs=10)
    with pytest.raises(SearchInvalid, match="too few"):
        plan(models=models, model_rollouts=1, model_pairs=10)
