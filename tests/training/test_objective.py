"""The objective: properties for arbitrary rows, and the settings the vectors do not reach."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.builders import make_row
from training import objective
from training.errors import ConfigurationError
from training.losses import Streams, build_streams
from training.types import (
    AdvantageMode,
    AdvantageSpec,
    EnvNorm,
    InfrastructureRows,
    ObjectiveSpec,
    PgNorm,
    PolicyLoss,
    Row,
    RowStatus,
)

LOGPROB = st.floats(-8, -0.01)


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Row], list[list[float]]]:
    """Rows of two groups with current log-probs per target."""
    rows, current = [], []
    for number in range(draw(st.integers(1, 5))):
        roles = draw(st.text("AEWCSP", min_size=1, max_size=10))
        old = tuple(draw(st.lists(LOGPROB, min_size=len(roles), max_size=len(roles))))
        row = make_row(
            roles,
            rollout=f"r{number}",
            group=draw(st.sampled_from(["g0", "g1"])),
            reward=draw(st.sampled_from([None, 0.0, 0.5, 1.0])),
            status=draw(st.sampled_from(list(RowStatus))),
            logprobs=(0.0, *old),
        )
        rows.append(row)
        current.append([value + draw(st.floats(-0.4, 0.4)) for value in old])
    return rows, current


SPECS = st.builds(
    ObjectiveSpec,
    lambda_env=st.sampled_from([0.0, 0.05, 1.0]),
    env_norm=st.sampled_from(list(EnvNorm)),
    pg_norm=st.sampled_from(list(PgNorm)),
    policy_loss=st.sampled_from(list(PolicyLoss)),
    max_seq_len=st.just(16),
    truncated_in_rl=st.booleans(),
    infrastructure=st.sampled_from(list(InfrastructureRows)),
    cut=st.sampled_from([None, 4]),
    max_env_tokens_per_observation=st.sampled_from([None, 2]),
)


def leaves(values: list[list[float]]) -> list[torch.Tensor]:
    return [torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in values]


def evaluate(
    rows: list[Row], current: list[list[float]], spec: ObjectiveSpec
) -> tuple[float, list[list[float]], Streams]:
    streams = build_streams(rows, spec)
    tensors = leaves(current)
    parts = objective.from_logprobs(tensors, streams.rows, spec)
    parts.loss.backward()  # type: ignore[no-untyped-call]
    grads = [torch.zeros_like(t) if t.grad is None else t.grad for t in tensors]
    return float(parts.loss.detach()), [g.tolist() for g in grads], streams


@settings(deadline=None)
@given(batch=batches(), spec=SPECS, data=st.data())
def test_any_split_into_micro_batches_gives_the_same_loss_and_gradient(
    batch: tuple[list[Row], list[list[float]]], spec: ObjectiveSpec, data: st.DataObject
) -> None:
    rows, current = batch
    loss, grads, streams = evaluate(rows, current, spec)
    order = data.draw(st.permutations(range(len(rows))))
    cut = data.draw(st.integers(0, len(rows)))
    total, tensors = 0.0, leaves(current)
    for piece in (order[:cut], order[cut:]):
        parts = objective.from_logprobs(
            [tensors[i] for i in piece], [streams.rows[i] for i in piece], spec
        )
        parts.loss.backward()  # type: ignore[no-untyped-call]
        total += float(parts.loss.detach())
    assert total == pytest.approx(loss, abs=1e-12)
    for tensor, expected in zip(tensors, grads, strict=True):
        found = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
        assert found.tolist() == pytest.approx(expected, abs=1e-12)


@settings(deadline=None)
@given(batch=batches(), spec=SPECS, seed=st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(
    batch: tuple[list[Row], list[list[float]]], spec: ObjectiveSpec, seed: Any
) -> None:
    rows, current = batch
    loss, grads, _ = evaluate(rows, current, spec)
    order = list(range(len(rows)))
    seed.shuffle(order)
    shuffled_loss, shuffled, _ = evaluate(
        [rows[i] for i in order], [current[i] for i in order], spec
    )
    assert shuffled_loss == pytest.approx(loss, abs=1e-12)
    for place, i in enumerate(order):
        assert shuffled[place] == pytest.approx(grads[i], abs=1e-12)


@settings(deadline=None)
@given(batch=batches(), spec=SPECS, n=st.integers(1, 4))
def test_padding_and_dummy_rows_change_nothing(
    batch: tuple[list[Row], list[list[float]]], spec: ObjectiveSpec, n: int
) -> None:
    rows, current = batch
    spec = replace(spec, cut=None)
    loss, grads, _ = evaluate(rows, current, spec)
    padded = [
        replace(
            row,
            ids=(*row.ids, *[0] * n),
            kinds=(*row.kinds, *make_row("P" * n).kinds[1:]),
            logprobs=(*(row.logprobs or ()), *[0.0] * n),
        )
        for row in rows
    ]
    dummy = make_row("AE", rollout="dummy", status=RowStatus.PAD, reward=9.0)
    other, found, _ = evaluate(
        [*padded, dummy], [*([*values, *[-9.0] * n] for values in current), [-1.0, -1.0]], spec
    )
    assert other == pytest.approx(loss, abs=1e-12)
    for row_grads, expected in zip(found, grads, strict=False):
        assert row_grads == pytest.approx([*expected, *[0.0] * n], abs=1e-12)
    assert found[-1] == [0.0, 0.0]


@settings(deadline=None)
@given(batch=batches(), spec=SPECS)
def test_gradients_stay_inside_their_sets(
    batch: tuple[list[Row], list[list[float]]], spec: ObjectiveSpec
) -> None:
    rows, current = batch
    _, grads, streams = evaluate(rows, current, spec)
    for stream, row_grads in zip(streams.rows, grads, strict=True):
        allowed = set(stream.rl_targets) | set(stream.env_targets)
        assert all(g == 0.0 for t, g in enumerate(row_grads) if t not in allowed)
        assert set(stream.rl_targets) <= set(stream.sets.actions)


def test_lambda_zero_never_looks_at_an_observation() -> None:
    rows = [
        make_row("AE", rollout="a", reward=1.0),
        make_row("AE", rollout="b", reward=0.0),
    ]
    spec = ObjectiveSpec(lambda_env=0.0)
    loss, grads, streams = evaluate(rows, [[-0.5, math.nan], [-0.7, -math.inf]], spec)
    assert not streams.has_env
    assert math.isfinite(loss)
    assert grads == [[-0.25, 0.0], [0.25, 0.0]]


def test_a_row_without_reward_keeps_its_observations_only() -> None:
    rows = [
        make_row("AE", rollout="a", reward=1.0),
        make_row("AE", rollout="b", reward=0.0),
        make_row("AE", rollout="c", reward=None, status=RowStatus.FAILED),
        make_row("AE", rollout="d", reward=None, status=RowStatus.INFRASTRUCTURE),
    ]
    spec = ObjectiveSpec(lambda_env=0.3, env_norm=EnvNorm.GLOBAL_TOKENS)
    _, grads, streams = evaluate(rows, [[-1.0, -1.0]] * 4, spec)
    assert [stream.advantage for stream in streams.rows] == [0.5, -0.5, None, None]
    assert grads[2] == [0.0, pytest.approx(-0.1)]
    assert grads[3] == [0.0, 0.0]
    assert (streams.batch_size, streams.n_rl, streams.n_env) == (3, 2, 3)


def test_an_infrastructure_failure_can_count_as_the_reference_trainer_counts_it() -> None:
    rows = [
        make_row("A", rollout="a", reward=1.0),
        make_row("A", rollout="b", reward=None, status=RowStatus.INFRASTRUCTURE),
    ]
    streams = build_streams(rows, ObjectiveSpec(infrastructure=InfrastructureRows.COUNT))
    assert streams.batch_size == 2
    assert streams.rows[0].advantage == 0.5
    assert streams.rows[1].rl_targets == ()


def test_a_truncated_rollout_can_be_kept_out_of_the_policy_term() -> None:
    rows = [
        make_row("AE", rollout="a", reward=1.0),
        make_row("AE", rollout="b", reward=0.0, status=RowStatus.TRUNCATED),
    ]
    streams = build_streams(rows, ObjectiveSpec(truncated_in_rl=False))
    assert streams.rows[0].advantage == 0.5
    assert streams.rows[1].rl_targets == ()
    assert streams.rows[1].env_targets == (1,)


def test_a_rollout_of_two_rows_counts_once() -> None:
    rows = [
        make_row("AEE", rollout="a", reward=1.0),
        make_row("AE", rollout="a", reward=1.0),
        make_row("AE", rollout="b", reward=0.0),
    ]
    streams = build_streams(rows, ObjectiveSpec(lambda_env=1.0))
    assert streams.batch_size == 2
    assert [stream.advantage for stream in streams.rows] == [0.5, 0.5, -0.5]
    assert streams.rows[0].env_weights == pytest.approx([1 / (2 * 3)] * 2)
    assert streams.rows[1].rl_weights == pytest.approx([1 / (2 * 2)])


@pytest.mark.parametrize(
    ("loss", "logprob", "old", "advantage", "gradient"),
    [
        (PolicyLoss.REINFORCE, -1.0, -2.0, 1.0, -1.0),
        (PolicyLoss.IMPORTANCE, -1.0, -1.0 - math.log(2), 1.0, -2.0),
        (PolicyLoss.TRUNCATED_IMPORTANCE, -1.0, -1.0 - math.log(3), 1.0, -2.0),
        (PolicyLoss.CISPO, -1.0, -1.0 - math.log(3), 1.0, -1.28),
        (PolicyLoss.PPO_CLIP, -1.0, -1.0 - math.log(3), 1.0, 0.0),
        (PolicyLoss.PPO_CLIP, -1.0, -1.0 - math.log(3), -1.0, 3.0),
        (PolicyLoss.PPO_CLIP, -1.0, -1.0 - math.log(0.5), -1.0, 0.0),
    ],
)
def test_policy_losses_follow_their_definitions(
    loss: PolicyLoss, logprob: float, old: float, advantage: float, gradient: float
) -> None:
    row = make_row("A", reward=advantage, logprobs=(0.0, old))
    spec = ObjectiveSpec(policy_loss=loss, advantage=AdvantageSpec(mode=AdvantageMode.NONE))
    _, grads, _ = evaluate([row], [[logprob]], spec)
    assert grads[0][0] == pytest.approx(gradient)


def test_an_empty_step_still_allows_backward() -> None:
    loss, grads, _ = evaluate([make_row("CS", reward=None)], [[-1.0, -2.0]], ObjectiveSpec())
    assert (loss, grads) == (0.0, [[0.0, 0.0]])


@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_an_impossible_lambda_is_refused(value: float) -> None:
    with pytest.raises(ConfigurationError, match="lambda"):
        build_streams([], ObjectiveSpec(lambda_env=value))
