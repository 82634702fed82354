"""Two traces aligned: every move once and in order, and the first divergence where it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.runs.comparison.steps import (
    Move,
    RowKind,
    aligned,
    first_divergence,
    stretches,
)


def trace(*calls: str) -> list[Move]:
    """`call=result` each; the first letter is the tool."""
    moves = []
    for number, text in enumerate(calls, start=1):
        call, _, result = text.partition("=")
        moves.append(Move(number, f"step {number}", call[:1], call, result))
    return moves


def kinds(left: list[Move], right: list[Move]) -> list[str]:
    return [row.kind.value for row in aligned(left, right)]


def test_alike_traces_have_no_divergence() -> None:
    rows = aligned(trace("ls=a", "cat=b"), trace("ls=a", "cat=b"))
    assert first_divergence(rows) is None


def test_the_same_call_may_bring_something_else() -> None:
    assert kinds(trace("ls=a", "cat=b"), trace("ls=a", "cat=c")) == ["same", "result"]


def test_a_step_more_moves_nothing_out_of_line() -> None:
    left, right = trace("ls=a", "cat=b", "wc=c"), trace("ls=a", "pwd=x", "cat=b", "wc=c")
    assert kinds(left, right) == ["same", "right", "same", "same"]
    assert first_divergence(aligned(left, right)) == 1


def test_between_anchors_the_same_tool_is_paired() -> None:
    left = trace("ls=a", "grep one=x", "wc=c")
    right = trace("ls=a", "date=n", "grep two=y", "wc=c")
    assert kinds(left, right) == ["same", "right", "call", "same"]


def test_spaces_do_not_make_another_call() -> None:
    assert kinds(trace("ls  -la=a"), trace("ls -la=a")) == ["same"]


MOVES = st.lists(
    st.sampled_from(["ls=a", "ls=b", "cat x=a", "cat y=a", "wc=1", "grep=2"]), max_size=14
).map(lambda calls: trace(*calls))


@given(MOVES, MOVES)
def test_each_move_is_there_once_and_in_order(left: list[Move], right: list[Move]) -> None:
    rows = aligned(left, right)
    assert [row.left for row in rows if row.left] == left
    assert [row.right for row in rows if row.right] == right
    for row in rows:
        assert (row.left is None) == (row.kind == RowKind.RIGHT)
        assert (row.right is None) == (row.kind == RowKind.LEFT)
    at = first_divergence(rows)
    before = rows if at is None else rows[:at]
    assert all(row.left and row.right and row.left.result == row.right.result for row in before)


@given(MOVES, MOVES)
def test_folding_hides_only_equal_rows_and_loses_none(left: list[Move], right: list[Move]) -> None:
    rows = aligned(left, right)
    found = stretches(rows)
    assert [row for stretch in found for _, row in stretch.rows] == rows
    assert [at for stretch in found for at, _ in stretch.rows] == list(range(len(rows)))
    for stretch in found:
        if stretch.is_folded:
            assert all(row.kind == RowKind.SAME for _, row in stretch.rows)
            assert len(stretch.rows) >= 3


def test_thousands_of_steps_are_aligned_with_what_is_rare() -> None:
    left = trace(*(f"ls={i % 3}" if i % 50 else f"cat {i}=x" for i in range(4_000)))
    right = left[:1_900] + trace("pwd=here") + left[1_900:]
    rows = aligned(left, right)
    assert first_divergence(rows) == 1_900
    assert sum(row.kind != RowKind.SAME for row in rows) == 1
