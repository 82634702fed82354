"""One hash for what both databases mean equal, another for everything else."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.moving.values import Digest, plain, storable

EAST = timezone(timedelta(hours=2))
texts = st.text(max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def _digest(*rows: list[Any]) -> str:
    digest = Digest()
    for row in rows:
        digest.add(row)
    return digest.hex()


@given(st.lists(st.tuples(st.integers(), anything), max_size=6), st.randoms())
def test_the_order_of_rows_does_not_matter(rows: list[tuple[int, Any]], random: Any) -> None:
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert _digest(*map(list, rows)) == _digest(*map(list, shuffled))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_a_row_less_or_twice_matters(rows: list[int], data: st.DataObject) -> None:
    chosen = data.draw(st.sampled_from(rows))
    less, more = list(rows), [*rows, chosen]
    less.remove(chosen)
    assert len({_digest(*([row] for row in some)) for some in (rows, less, more)}) == 3


@given(anything)
def test_what_is_storable_stays_so_and_is_json(value: Any) -> None:
    fit = storable(value)
    assert storable(fit) == fit
    assert "\\u0000" not in json.dumps(fit)
    json.dumps(fit, ensure_ascii=False).encode()
    json.dumps(plain(fit), sort_keys=True)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1e16, 10**16),  # as PostgreSQL writes it
        (1e308, 10**308),
        (-0.0, 0),
        (Decimal("1.50"), Decimal("1.5")),
        (Decimal("100"), Decimal("100.00")),
        (b"\x00\xff", memoryview(b"\x00\xff")),
        (
            datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
            datetime(2026, 1, 1, tzinfo=UTC),
        ),
        ({"a": 1, "b": 2.0}, {"b": 2, "a": 1}),
    ],
)
def test_equal_forms(one: Any, other: Any) -> None:
    assert _digest([one]) == _digest([other])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (2**63 - 1, 2**63 - 2),  # seeds are as large as that
        (0.1, 0.1 + 2e-17),
        ("1", 1),
        (None, ""),
        (True, "true"),
        ([1, [2]], [[1], 2]),
        (Decimal("1.5"), Decimal("1.05")),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    ],
)
def test_different_values(one: Any, other: Any) -> None:
    assert _digest([one]) != _digest([other])
