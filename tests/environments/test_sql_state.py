"""Comparing states: examples, and what holds for any of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.environments.sql.answers import is_answer
from orchestrator.environments.sql.state import (
    State,
    Table,
    rows_of,
    same_rows,
    share_of_change,
    without,
)

TOLERANCE = 1e-6


def state(**tables: Sequence[Sequence[Any]]) -> dict[str, Table]:
    """Tables with columns `a`, `b`, …"""
    return {
        name: Table(tuple("abcdefgh"[: len(rows[0]) if rows else 1]), rows_of(rows))
        for name, rows in tables.items()
    }


def share(initial: State, expected: State, final: State, tolerance: float = TOLERANCE) -> float:
    return share_of_change(initial, expected, final, tolerance=tolerance)


BEFORE = state(t=[[1, "x"], [2, "y"], [3, "z"]])


@pytest.mark.parametrize(
    ("expected", "final", "wanted"),
    [
        # Nothing done, all done, half of two updates done (each removes a row and adds one).
        ([[1, "q"], [2, "q"], [3, "z"]], [[1, "x"], [2, "y"], [3, "z"]], 0.0),
        ([[1, "q"], [2, "q"], [3, "z"]], [[3, "z"], [2, "q"], [1, "q"]], 1.0),
        ([[1, "q"], [2, "q"], [3, "z"]], [[1, "q"], [2, "y"], [3, "z"]], 0.5),
        # All done, and a row too many deleted: four right changes, one wrong.
        ([[1, "q"], [2, "q"], [3, "z"]], [[1, "q"], [2, "q"]], 0.8),
        # Everything deleted where one row should be.
        ([[1, "x"], [2, "y"]], [], 1 / 3),
        # Nothing was to change.
        ([[1, "x"], [2, "y"], [3, "z"]], [[1, "x"], [2, "y"], [3, "z"]], 1.0),
        ([[1, "x"], [2, "y"], [3, "z"]], [[1, "x"], [2, "y"]], 0.0),
    ],
)
def test_the_share_counts_changes(
    expected: list[list[Any]], final: list[list[Any]], wanted: float
) -> None:
    goal, after = ({"t": Table(("a", "b"), rows_of(rows))} for rows in (expected, final))
    assert share(BEFORE, goal, after) == pytest.approx(wanted)


def test_tables_that_come_and_go_count() -> None:
    more = {**BEFORE, "new": Table(("a",), ())}
    assert share(BEFORE, more, more) == 1.0
    assert share(BEFORE, more, BEFORE) == 0.0
    assert share(BEFORE, BEFORE, more) == 0.0
    assert share(BEFORE, {}, {}) == 1.0
    renamed = {**BEFORE, "new": Table(("b",), ())}
    assert share(BEFORE, more, renamed) == 0.0


def test_duplicates_count_as_often_as_they_are_there() -> None:
    assert not same_rows(rows_of([[1], [1]]), rows_of([[1]]), tolerance=0)
    assert not same_rows(rows_of([[1], [1], [2]]), rows_of([[1], [2], [2]]), tolerance=0)


def test_types_are_kept_apart_except_numbers() -> None:
    same: list[tuple[Any, Any]] = [(1, 1.0), (None, None), (b"x", b"x"), (math.nan, math.nan)]
    other: list[tuple[Any, Any]] = [(1, "1"), (1, True), (0, None), ("", None), ("x", b"x")]
    for left, right in same:
        assert same_rows(rows_of([[left]]), rows_of([[right]]), tolerance=TOLERANCE), (left, right)
    for left, right in other:
        assert not same_rows(rows_of([[left]]), rows_of([[right]]), tolerance=TOLERANCE), (
            left,
            right,
        )


def test_big_whole_numbers_are_exact_and_sums_of_floats_are_not() -> None:
    assert not same_rows([(10**15,)], [(10**15 + 1,)], tolerance=TOLERANCE)
    assert same_rows([(123456789.1,)], [(123456789.1 + 1e-7,)], tolerance=0)
    assert same_rows([(0.3,)], [(0.1 + 0.2,)], tolerance=0)
    assert not same_rows([(float("inf"),)], [(1e308,)], tolerance=TOLERANCE)
    assert not same_rows([(10**400,)], [(0.5,)], tolerance=TOLERANCE)


def test_the_best_pairing_is_found() -> None:
    """0.0 could take 0.9 first, which would leave nothing for 1.8."""
    assert same_rows([(0.1,), (1.0,)], [(1.1,), (0.2,)], tolerance=0.95)
    assert same_rows([(0.0,), (0.9,)], [(0.9,), (1.8,)], tolerance=0.91)


def test_ignored_columns_and_their_order() -> None:
    left = {"t": Table(("id", "at", "x"), ((1, "now", 5),))}
    right = {"t": Table(("x", "id", "at"), ((5, 1, "later"),))}
    assert without(left, ["T.At"]) == without(right, ["t.at"])
    assert without(left, []) != without(right, [])


CELLS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, width=32),
    st.text(max_size=4),
    st.binary(max_size=3),
)
ROWS = st.lists(st.tuples(CELLS, CELLS), max_size=8)


@given(ROWS, st.randoms())
def test_the_order_of_rows_is_nothing(rows: list[tuple[Any, Any]], random: Any) -> None:
    shuffled = random.sample(rows, len(rows))
    assert same_rows(rows, shuffled, tolerance=TOLERANCE)
    assert same_rows(shuffled, rows, tolerance=TOLERANCE)
    before, after = state(t=[[9, 9]]), {"t": Table(("a", "b"), tuple(rows))}
    assert share(before, after, {"t": Table(("a", "b"), tuple(shuffled))}) == 1.0


@given(
    st.lists(st.tuples(st.text(max_size=2), st.floats(-1e3, 1e3)), max_size=12),
    st.lists(st.floats(-0.49, 0.49), min_size=12, max_size=12),
    st.randoms(),
)
def test_noise_within_the_tolerance_is_nothing(
    rows: list[tuple[str, float]], noise: list[float], random: Any
) -> None:
    noisy = [(text, x + d) for (text, x), d in zip(rows, noise, strict=False)]
    assert same_rows(rows, random.sample(noisy, len(noisy)), tolerance=0.5)


@settings(max_examples=5)
@given(st.integers(201, 260), st.randoms())
def test_many_rows_that_differ_in_numbers_alone_are_paired_too(n: int, random: Any) -> None:
    rows = [(float(i) + 0.25,) for i in range(n)]
    noisy = [(value + 1e-7,) for (value,) in random.sample(rows, n)]
    assert same_rows(rows, noisy, tolerance=TOLERANCE)
    assert not same_rows(rows, [*noisy[:-1], (-5.0,)], tolerance=TOLERANCE)


@given(ROWS, ROWS, ROWS)
def test_the_share_is_one_only_for_the_expected_state(
    initial: list[Any], expected: list[Any], final: list[Any]
) -> None:
    before, goal, after = (
        {"t": Table(("a", "b"), tuple(rows))} for rows in (initial, expected, final)
    )
    found = share(before, goal, after, tolerance=0)
    assert 0.0 <= found <= 1.0
    assert (found == 1.0) == same_rows(expected, final, tolerance=0)
    assert share(before, goal, goal) == 1.0
    if not same_rows(initial, expected, tolerance=0):
        assert share(before, goal, before, tolerance=0) == 0.0


@pytest.mark.parametrize(
    ("rows", "text", "is_right"),
    [
        ([[7]], "7", True),
        ([[7]], "7.0", True),
        ([[7]], "7 people", False),
        ([[2.5]], "2.5000001", True),
        ([["Ann Lee"]], '"Ann  Lee"', True),
        ([["Ann, Bob"]], "Ann, Bob", True),
        ([[None]], "NULL", True),
        ([], "none", True),
        ([], "", True),
        ([], "Ann", False),
        ([["Ann"], ["Bob"]], "Bob, Ann", True),
        ([["Ann"], ["Bob"]], "Bob\nAnn\n", True),
        ([["Ann"], ["Bob"]], "Ann", False),
        ([["Ann"], ["Ann"]], "Ann, Bob", False),
        ([["Ann", 3], ["Bob", 4]], "Bob | 4\nAnn | 3", True),
        ([["Ann", 3], ["Bob", 4]], "Ann, 3\nBob, 4", True),
        ([["Ann", 3], ["Bob", 4]], "Ann, 4\nBob, 3", False),
        ([[1]], "nan", False),
        ([[1]], "1e999999", False),
    ],
)
def test_answers_in_words(rows: list[list[Any]], text: str, is_right: bool) -> None:
    assert is_answer(text, rows_of(rows), tolerance=1e-3) is is_right


def test_the_order_of_an_answer_counts_where_the_author_says_so() -> None:
    rows = rows_of([["Ann"], ["Bob"]])
    assert is_answer("Ann\nBob", rows, tolerance=0, is_ordered=True)
    assert not is_answer("Bob\nAnn", rows, tolerance=0, is_ordered=True)


@given(st.text(max_size=300), ROWS)
def test_any_text_can_be_an_answer(text: str, rows: list[Any]) -> None:
    assert is_answer(text, rows, tolerance=TOLERANCE) in (True, False)
