"""The token ledger's arithmetic."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.web.ledger import stretches, sums, visible

KINDS = ("context", "action", "env_output", "warning", "scaffold", "pad")
layouts = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 6)), max_size=8)


def row_of(layout: list[tuple[str, int]]) -> Any:
    total = sum(size for _, size in layout)
    sampled = sum(size for kind, size in layout if kind == "action")
    kinds = [list(each) for each in layout]
    return SimpleNamespace(ids=list(range(total)), kinds=kinds, logprobs=[-0.5] * sampled)


@given(layout=layouts)
def test_every_token_is_shown_once_and_only_its_own_weight(layout: list[tuple[str, int]]) -> None:
    row = row_of(layout)
    entries = [
        e for part in stretches(0, row, advantage=-0.25, coefficient=0.05) for e in part.entries
    ]
    assert [e.id for e in entries] == row.ids
    for entry in entries:
        expected = {"action": -0.25, "env_output": 0.05}.get(entry.kind)
        assert entry.weight == expected
        assert entry.is_trained == (expected is not None)
        assert (entry.logprob is not None) == (entry.kind == "action")


@given(layout=layouts, drop=st.floats(-3, 3))
def test_what_became_predictable_is_observed_and_clearly_less_surprising(
    layout: list[tuple[str, int]], drop: float
) -> None:
    row = row_of(layout)
    before = {0: {"logprobs": [None, *[-4.0] * len(row.ids)][: len(row.ids)]}}
    after = {0: {"logprobs": [None, *[-4.0 + drop] * len(row.ids)][: len(row.ids)]}}
    parts = stretches(0, row, before=before, after=after)
    learned = sum(part.learned for part in parts)
    observed = sum(e.kind == "env_output" and e.place > 0 for p in parts for e in p.entries)
    surprises = [e.change for p in parts for e in p.entries if e.change is not None]
    assert learned == (observed if surprises and surprises[0] < -0.5 else 0)
    assert sum(each.count for each in sums(parts)) == len(row.ids)


def test_a_look_at_other_tokens_is_left_out() -> None:
    row = row_of([("env_output", 3)])
    (part,) = stretches(0, row, before={0: {"logprobs": [None, -1.0], "pieces": ["a", "b"]}})
    assert part.surprise is None
    assert [entry.piece for entry in part.entries] == ["", "", ""]
    broken = {0: {"logprobs": [None, math.nan, -math.inf], "pieces": ["a", "b", "c"]}}
    (part,) = stretches(0, row, before=broken)
    assert part.surprise is None


def test_control_characters_can_be_seen() -> None:
    assert visible("a\n\t\x1b") == "a↵⇥\\u001b"
