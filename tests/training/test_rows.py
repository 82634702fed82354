"""Rows: reading, merging turns, and counting shared tokens once."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.builders import make_row
from training.errors import RowError
from training.rows import (
    Node,
    RowBuilder,
    count_once_by_prefix,
    demote_prompt,
    node_weights,
    read_rows,
    row_from_json,
    row_to_json,
)
from training.types import RowStatus, TokenKind

A, E, C = TokenKind.ACTION, TokenKind.ENV_OUTPUT, TokenKind.CONTEXT
S, W = TokenKind.SCAFFOLD, TokenKind.WARNING


def record(**changes: Any) -> dict[str, Any]:
    row = make_row("AEW", logprobs=(0.0, -0.5, 0.0, 0.0))
    return {**row_to_json(row), **changes}


def test_a_row_survives_its_json_form() -> None:
    row = make_row("AEW", logprobs=(0.0, -0.5, 0.0, 0.0))
    assert row_from_json(json.loads(json.dumps(row_to_json(row))), where="row 1") == row


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kinds": ["context"]}, "4 ids but 1 kinds"),
        ({"logprobs": [0.0]}, "4 ids but 1 logprobs"),
        ({"kinds": ["context", "action", "env_output", "thought"]}, "thought"),
        ({"status": "lost"}, "lost"),
        ({"logprobs": [0.0, math.nan, 0.0, 0.0]}, "action token"),
        ({"logprobs": [0.0, 0.7, 0.0, 0.0]}, "action token"),
    ],
)
def test_a_malformed_row_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RowError, match=f"row 7.*{message}"):
        row_from_json(record(**changes), where="row 7")


def test_a_missing_field_is_named() -> None:
    broken = record()
    del broken["ids"]
    with pytest.raises(RowError, match="'ids' is missing"):
        row_from_json(broken, where="row 1")


@pytest.mark.parametrize("reward", [math.nan, math.inf, None])
def test_a_reward_that_is_no_number_is_no_score(reward: float | None) -> None:
    assert row_from_json(record(reward=reward), where="row 1").reward is None


def test_observations_in_the_prompt_are_not_targets() -> None:
    assert demote_prompt(make_row("EWAEW")).kinds == (C, C, C, A, E, W)


def test_turns_merge_while_prompts_extend() -> None:
    builder = RowBuilder(rollout="r", group="g", weight_version="v1")
    builder.add_turn(
        prompt_ids=[1, 2], prompt_kinds=[C, C], action_ids=[3, 4], action_logprobs=[-0.1, -0.2]
    )
    builder.add_turn(
        prompt_ids=[1, 2, 3, 4, 5, 6],
        prompt_kinds=[C, C, A, A, S, E],
        action_ids=[7],
        action_logprobs=[-0.3],
    )
    builder.add_observation(ids=[8, 9], kinds=[S, E])
    (row,) = builder.rows(reward=1.0, status=RowStatus.OK)
    assert row.ids == (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert row.kinds == (C, C, A, A, S, E, A, S, E)
    assert row.logprobs == (0.0, 0.0, -0.1, -0.2, 0.0, 0.0, -0.3, 0.0, 0.0)


def test_a_prompt_that_does_not_extend_starts_a_row_of_context() -> None:
    builder = RowBuilder(rollout="r", group="g")
    builder.add_turn(prompt_ids=[1], prompt_kinds=[C], action_ids=[2], action_logprobs=[-0.1])
    builder.add_turn(
        prompt_ids=[1, 9, 5], prompt_kinds=[C, A, E], action_ids=[6], action_logprobs=[-0.1]
    )
    first, second = builder.rows(reward=None, status=RowStatus.FAILED)
    assert first.kinds == (C, A)
    assert second.kinds == (C, C, C, A)


def test_tokens_that_rows_of_a_rollout_share_count_once() -> None:
    first = make_row("AEE", rollout="r", ids=(1, 2, 3, 4))
    branch = make_row("AEE", rollout="r", ids=(1, 2, 3, 5))
    stranger = make_row("AEE", rollout="other", ids=(1, 2, 3, 4))
    rows = count_once_by_prefix([first, branch, stranger])
    assert [row.kinds for row in rows] == [(C, A, E, E), (C, C, C, E), (C, A, E, E)]


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=4))
def test_every_distinct_prefix_is_trained_exactly_once(sequences: list[list[int]]) -> None:
    rows = [make_row("A" * len(ids), rollout="r", ids=(0, *ids)) for ids in sequences]
    trained = [
        tuple(row.ids[: t + 1])
        for row in count_once_by_prefix(rows)
        for t, kind in enumerate(row.kinds)
        if kind is A
    ]
    distinct = {(0, *ids[: t + 1]) for ids in sequences for t in range(len(ids))}
    assert sorted(trained) == sorted(distinct)


def test_rows_are_read_from_json_lines() -> None:
    text = "\n".join(json.dumps(record(rollout=name)) for name in "ab") + "\n\n"
    assert [row.rollout for row in read_rows(text)] == ["a", "b"]


def test_weights_start_after_the_first_sampled_message_and_skip_scaffold() -> None:
    nodes = [
        Node("tool", False, 1),
        Node("assistant", True, 1),
        Node("tool", False, 2, (False, True)),
        Node("user", False, 1),
    ]
    assert node_weights(nodes, {"tool": 0.1}) == [0.0, 0.0, 0.0, 0.1, 0.0]
