"""Packs: every row once, prefixes shared, the budget kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.errors import ConfigurationError
from training.packing import pack_rows, shared_root

SEQUENCES = st.lists(
    st.lists(st.integers(0, 1), min_size=1, max_size=8).map(tuple), min_size=1, max_size=8
)


@given(ids=SEQUENCES, budget=st.integers(1, 30), data=st.data())
def test_packs_hold_every_needed_token_once_per_row(
    ids: list[tuple[int, ...]], budget: int, data: st.DataObject
) -> None:
    needed = [data.draw(st.integers(0, len(row))) for row in ids]
    packs = pack_rows(ids, needed, budget_tokens=budget)
    seen = [index for pack in packs for index in pack.rows]
    assert sorted(seen) == [i for i, n in enumerate(needed) if n > 0]
    for pack in packs:
        assert pack.n_tokens <= budget or len(pack.rows) == 1
        flat = [*pack.prefix, *(token for suffix in pack.suffixes for token in suffix)]
        for member, index in enumerate(pack.rows):
            positions = pack.flat_positions(member, range(needed[index]))
            assert [flat[p] for p in positions] == list(ids[index][: needed[index]])
    assert sum(pack.n_tokens for pack in packs) <= sum(needed)


def test_a_stranger_does_not_break_a_shared_prefix() -> None:
    rows = [(1, 2, 3, 4), (1, 2, 3, 5), (9, 9)]
    packs = pack_rows(rows, [4, 4, 2], budget_tokens=100)
    assert [(pack.prefix, pack.rows) for pack in packs] == [((1, 2, 3), (0, 1)), ((9, 9), (2,))]


def test_a_budget_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="budget_tokens"):
        pack_rows([(1,)], [1], budget_tokens=0)


@given(ids=SEQUENCES, data=st.data())
def test_the_root_is_the_longest_beginning_of_all_rows(
    ids: list[tuple[int, ...]], data: st.DataObject
) -> None:
    firsts = [data.draw(st.integers(0, len(row))) for row in ids]
    root = shared_root(ids, [len(row) for row in ids], firsts)
    assert root <= min(firsts)
    assert len({row[:root] for row in ids}) == 1
    if root < min(*firsts, *map(len, ids), 99):
        assert len({row[: root + 1] for row in ids}) > 1
