"""Rows out and in again: masks that partition the tokens, traces that OpenEnv accepts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.builders import ROLES, make_row, make_step
from training.errors import RowError
from training.exchange import from_trace, main, read, to_masks, to_trace, write
from training.losses import build_streams
from training.rows import RowBuilder
from training.types import ObjectiveSpec, Row, RowStatus, TokenKind, TurnCounts

TURNS = st.lists(
    st.tuples(
        st.integers(1, 4),  # sampled tokens
        st.lists(st.sampled_from("ESW"), max_size=5),  # what the environment adds
        st.booleans(),  # whether the next prompt extends what came before
    ),
    min_size=1,
    max_size=4,
)


@st.composite
def rollouts(draw: st.DrawFn) -> tuple[list[Row], list[int]]:
    """Rows of a multi-turn rollout as a recorder builds them, and the ids that were sampled."""
    builder = RowBuilder(rollout="r", group="g", weight_version="v3")
    token = iter(range(1000, 9999))
    ids = [next(token) for _ in range(draw(st.integers(1, 4)))]
    kinds = [TokenKind.CONTEXT] * len(ids)
    sampled: list[int] = []
    for n_actions, observed, extends in draw(TURNS):
        if not extends:
            ids, kinds = [next(token), *ids[2:]], [TokenKind.CONTEXT, *kinds[2:]]
        action = [next(token) for _ in range(n_actions)]
        builder.add_turn(
            prompt_ids=ids,
            prompt_kinds=kinds,
            action_ids=action,
            action_logprobs=[-draw(st.floats(0, 5)) for _ in action],
        )
        sampled += action
        ids += action + [next(token) for _ in observed]
        kinds += [TokenKind.ACTION] * n_actions + [ROLES[role] for role in observed]
    last = len(observed)
    if last:
        builder.add_observation(ids=ids[-last:], kinds=kinds[-last:])
    rows = builder.rows(reward=draw(st.sampled_from([None, 0.0, 1.0])), status=RowStatus.OK)
    return rows, sampled


@settings(deadline=None)
@given(built=rollouts())
def test_masks_partition_the_tokens_and_ids_trained_are_ids_sampled(
    built: tuple[list[Row], list[int]],
) -> None:
    rows, sampled = built
    trained: list[int] = []
    for row in rows:
        record = to_masks(row)
        masks = [record["action_mask"], record["obs_mask"], record["warning_mask"]]
        assert {len(mask) for mask in masks} == {len(record["token_ids"])} == {len(row.kinds)}
        assert row.logprobs is not None
        assert len(row.logprobs) == len(row.ids)
        assert all(sum(flags) <= 1 for flags in zip(*masks, strict=True))
        counts = [row.kinds.count(kind) for kind in TokenKind]
        assert sum(counts) == len(row.ids)
        first = row.kinds.index(TokenKind.ACTION)
        assert not any(any(mask[:first]) for mask in masks)
        targets = build_streams([replace(row, reward=1.0)], ObjectiveSpec()).rows[0].sets.actions
        trained += [row.ids[t + 1] for t in targets]
    assert trained == sampled


@settings(deadline=None)
@given(built=rollouts(), form=st.sampled_from(["rows", "masks", "trace"]))
def test_every_form_gives_the_rows_back(built: tuple[list[Row], list[int]], form: str) -> None:
    rows, _ = built
    expected = rows
    if form == "trace":
        # A trace knows no row beyond its calls: each row is a trace.
        rows = expected = [row for row in rows if TokenKind.ACTION in row.kinds]
    assert read(write(rows, form), form) == expected


def test_openenv_accepts_the_trace_and_reads_the_same() -> None:
    training = pytest.importorskip("openenv.core.harness.training")
    rows = make_step()
    for row in rows:
        written = to_trace(row)
        trace = training.TrainingTrace.model_validate(written)
        (again,) = from_trace(trace.model_dump(), rollout="x")
        assert again == replace(row, logprobs=again.logprobs)
        assert sum(sum(turn.loss_mask) for turn in trace.turns) == row.kinds.count("action")


def test_a_foreign_trace_has_actions_and_context_alone() -> None:
    turns = [
        {
            "node_id": "a",
            "prompt_token_ids": [1, 2],
            "completion_token_ids": [3, 4],
            "per_token_logps": [-0.5, -1.0],
            "loss_mask": [0, 0, 1, 0],
        },
        {
            "node_id": "b",
            "prompt_token_ids": [1, 2, 3, 4, 5, 6],
            "completion_token_ids": [7],
            "per_token_logps": [-2.0],
            "loss_mask": [0] * 6 + [1],
        },
    ]
    (row,) = from_trace({"turns": turns}, rollout="r", group="g", reward=0.5)
    assert row.ids == (1, 2, 3, 4, 5, 6, 7)
    assert "".join("A" if kind == "action" else "C" for kind in row.kinds) == "CCACCCA"
    assert row.reward == 0.5
    streams = build_streams([row], ObjectiveSpec(lambda_env=1.0))
    assert streams.n_env == 0


def test_weights_of_a_step_travel_with_the_masks() -> None:
    rows = [
        make_row("AAE", rollout="a", reward=1.0),
        replace(make_row("AWE", rollout="b", reward=0.0), quality=TurnCounts(1, 0, 1)),
    ]
    streams = build_streams(rows, ObjectiveSpec(lambda_env=0.1))
    first, second = map(json.loads, write(rows, "masks", streams=streams).splitlines())
    assert first["advantage"] == 0.5
    assert first["rl_weights"] == [0.0, 0.25, 0.25, 0.0]
    assert second["ce_weights"] == pytest.approx([0.0, 0.0, 0.0, 0.1 / 4])
    assert second["warning_mask"] == [False, False, True, False]
    assert read(write(rows, "masks", streams=streams), "masks") == rows


def test_masks_of_others_need_no_roles() -> None:
    record = to_masks(make_row("AWE"))
    del record["roles"], record["group"], record["status"], record["logprobs"]
    (row,) = read(json.dumps(record), "masks")
    assert row.kinds == make_row("AWE").kinds
    assert row.logprobs is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obs_mask": [False, True, True, True]}, "token 1 is in action_mask and obs_mask"),
        ({"obs_mask": [True]}, "4 token_ids but 1 entries in obs_mask"),
        ({"roles": "C1A1E2"}, "roles and masks disagree"),
        ({"roles": "X4"}, "letters"),
        ({"logprobs": [0.0]}, "1 logprobs"),
        ({"status": "lost"}, "lost"),
    ],
)
def test_masks_that_do_not_fit_are_refused_by_name(change: dict[str, object], message: str) -> None:
    record = {**to_masks(make_row("AWE")), **change}
    with pytest.raises(RowError, match=message):
        read(json.dumps(record), "masks")


def test_a_row_that_a_trace_cannot_hold_is_refused() -> None:
    with pytest.raises(RowError, match="log-probs"):
        to_trace(make_row("AE"))


def test_the_command_turns_one_form_into_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(write(make_step(groups=1), "rows"), encoding="utf-8")
    assert main([str(path), "--to", "masks"]) == 0
    assert read(capsys.readouterr().out, "masks") == make_step(groups=1)
    path.write_text("{}\n", encoding="utf-8")
    assert main([str(path)]) == 1
    assert "row 1" in capsys.readouterr().err
