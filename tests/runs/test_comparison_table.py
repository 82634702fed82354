"""Tasks × sides: what is paired, what is left out and counted, what is shown and in which order."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.runs.comparison.table import CellState, Fact, alone, contrast, tasks_by_side
from orchestrator.web.comparing import MODES, Options, options_of, select, shown_in

STATES = ("scored", "errored", "not_applicable", "pending", "running", "judging", "cancelled")


def fact(task: str, score: float | None = None, state: str = "", replicate: int = 0) -> Fact:
    state = state or ("scored" if score is not None else "errored")
    return Fact(hash((task, replicate)), (1, task), "f", "test", replicate, state, score)


def side(**scores: float | None) -> list[Fact]:
    return [fact(task, score) for task, score in scores.items()]


def test_a_failure_is_no_zero() -> None:
    rows = tasks_by_side([side(a=1.0, b=1.0), side(a=1.0, b=None)])
    found = contrast(rows, 1)
    assert (found.base, found.other, found.paired.mean) == (1.0, 1.0, 0.0)
    assert (found.n_broken, found.paired.coverage) == (1, 0.5)
    assert [row.deltas[1] for row in rows] == [0.0, None]


def test_replicates_are_averaged_before_tasks_are() -> None:
    base = [fact("a", 0.0, replicate=r) for r in range(4)] + [fact("b", 0.0)]
    other = [fact("a", 1.0, replicate=r) for r in range(4)] + [fact("b", 0.0)]
    found = contrast(tasks_by_side([base, other]), 1)
    assert found.paired.units == 2 and found.paired.pairs == 5
    assert found.paired.mean == found.other == 0.5


def test_replicates_of_one_side_only_are_in_no_pair() -> None:
    base = [fact("a", 1.0), fact("a", 0.0, replicate=1)]
    rows = tasks_by_side([base, [fact("a", 1.0)]])
    assert rows[0].deltas[1] == 0.0
    assert contrast(rows, 1).paired.pairs == 1


def test_what_is_open_or_not_applicable_counts_in_no_coverage() -> None:
    base = side(a=1.0, b=1.0, c=1.0)
    other = [fact("a", 1.0), fact("b", state="not_applicable"), fact("c", state="running")]
    found = contrast(tasks_by_side([base, other]), 1)
    assert (found.n_na, found.n_open, found.n_broken) == (1, 1, 0)
    assert found.paired.coverage == 1.0


def test_tasks_of_one_side_are_listed_apart() -> None:
    rows = tasks_by_side([side(a=1.0, b=1.0), side(b=1.0, c=1.0)])
    found = alone(rows, 1)
    assert (found.base, found.other) == (["a"], ["c"])
    assert contrast(rows, 1).paired.units == 1


def test_the_same_key_in_another_environment_is_another_task() -> None:
    other = [Fact(1, (2, "a"), "f", "test", 0, "scored", 1.0)]
    assert contrast(tasks_by_side([side(a=1.0), other]), 1).paired.units == 0


FACTS = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.integers(0, 2),
        st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0]), st.sampled_from(STATES[1:])),
    ),
    max_size=12,
    unique_by=lambda item: item[:2],
).map(
    lambda items: [
        fact(t, v, "scored", r) if isinstance(v, float) else fact(t, None, v, r)
        for t, r, v in items
    ]
)


@settings(max_examples=40)
@given(st.lists(FACTS, min_size=2, max_size=4))
def test_counts_agree_with_the_rollouts(sides: list[list[Fact]]) -> None:
    rows = tasks_by_side(sides)
    for at, facts in enumerate(sides):
        shown = [f for row in rows for f in row.cells[at].facts]
        assert sorted(f.rollout for f in shown) == sorted(f.rollout for f in facts)
    for at in range(1, len(sides)):
        found = contrast(rows, at)
        mine = {(f.task, f.replicate): f for f in sides[0]}
        pairs = [(mine[k], f) for f in sides[at] if (k := (f.task, f.replicate)) in mine]
        total = found.paired.scheduled + found.n_open + found.n_na
        assert total == len(pairs)
        assert found.paired.pairs == sum(
            one.score is not None and two.score is not None for one, two in pairs
        )
        deltas = [row.deltas[at] for row in rows if row.deltas[at] is not None]
        if deltas:
            assert found.paired.mean == pytest.approx(math.fsum(deltas) / len(deltas))  # type: ignore[arg-type] # no None
            assert found.other is not None and found.base is not None
            assert found.other - found.base == pytest.approx(found.paired.mean)
        else:
            assert found.paired.mean is None


@settings(max_examples=40)
@given(st.lists(FACTS, min_size=2, max_size=3), st.sampled_from(MODES), st.booleans())
def test_what_is_hidden_is_counted(sides: Sequence[list[Fact]], mode: str, only: bool) -> None:
    rows = tasks_by_side(sides)
    found = select(rows, Options(show=mode, differs=only))
    assert len(found.all_rows) == found.n_shown
    assert found.n_shown + found.n_equal == len(shown_in(rows, mode))
    assert found.n_all == len(rows)
    if only:
        assert all(row.differs for row in found.all_rows)


@given(FACTS)
def test_a_cell_without_a_score_says_why(facts: list[Fact]) -> None:
    for row in tasks_by_side([facts, []]):
        cell = row.cells[0]
        assert (cell.state == CellState.SCORED) == (cell.score is not None)
        assert row.cells[1].state == CellState.ABSENT


def test_the_address_makes_the_same_page_again() -> None:
    options = Options(
        ("3", "1.7"),
        show="errors",
        sort="gain",
        layout="grid",
        differs=True,
        words=True,
        split="test",
    )
    query = options.link(page=3)
    given_ = {
        name: [value] for name, value in (pair.split("=") for pair in query.lstrip("?").split("&"))
    }
    assert options_of(given_).link(page=3) == query
    assert options_of({"runs": ["3", "1.7,3"], "page": ["x"]}).tokens == ("3", "1.7")
