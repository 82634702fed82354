"""Step metrics: names of the ECHO reference, counts beside means, no number without data."""

from __future__ import annotations

import json
import math

import pytest

from tests.training.builders import make_row
from training.backends.base import OptimStats, PassStats
from training.losses import build_streams
from training.metrics import Metrics, pool_metrics, step_metrics
from training.types import ObjectiveSpec, Row, RowStatus

PASSES = PassStats(
    loss=0.3,
    policy_loss=0.1,
    env_loss=4.0,
    log_ratios=(0.0, 0.2),
    entropies=(),
    env_nll_sum=6.0,
    n_env_tokens=3,
    row_tokens=20,
    packed_tokens=12,
    packs=1,
    seconds=2.0,
)


def metrics_of(rows: list[Row], passes: PassStats = PASSES, grad_norm: float = 1.0) -> Metrics:
    spec = ObjectiveSpec(lambda_env=0.05)
    return step_metrics(
        rows=rows,
        streams=build_streams(rows, spec),
        spec=spec,
        learning_rate=1e-4,
        passes=passes,
        optim=OptimStats(grad_norm=grad_norm, is_skipped=False, skipped_in_a_row=0),
    )


def test_means_come_with_the_number_behind_them() -> None:
    rows = [
        make_row("AWEE", rollout="a", reward=1.0),
        make_row("AE", rollout="b", reward=0.0, status=RowStatus.TRUNCATED),
        make_row("A", rollout="c", reward=None, status=RowStatus.FAILED),
        make_row("A", rollout="d", reward=None, status=RowStatus.INFRASTRUCTURE),
    ]
    metrics = metrics_of(rows)
    assert (metrics["reward_mean"], metrics["reward_n"], metrics["reward_masked"]) == (0.5, 2, 2)
    assert (metrics["rollouts_truncated"], metrics["rollouts_infrastructure"]) == (1, 1)
    assert metrics["world_ce_selected_per_token"] == 2.0
    assert (metrics["world_tokens_selected"], metrics["world_tokens_warning"]) == (3, 1)
    assert metrics["world_policy_loss_ratio"] == pytest.approx(2.0)
    assert metrics["kl_k1"] == pytest.approx(-0.1)
    assert metrics["ratio_outside_share"] == 0.5


def test_a_step_without_scores_has_no_mean() -> None:
    metrics = metrics_of([make_row("C", reward=None)])
    assert metrics["reward_mean"] is None
    assert metrics["observation_tokens_mean"] is None


def test_metrics_are_json_even_if_the_gradient_is_not_finite() -> None:
    metrics = metrics_of([make_row("AE")], grad_norm=math.nan)
    assert json.loads(json.dumps(metrics, allow_nan=False))["grad_norm"] is None


def test_the_surprise_at_a_pool_keeps_warnings_apart() -> None:
    row = make_row("AWEEC")
    found = pool_metrics([row], [[-9.0, -0.5, -1.0, -2.0, -9.0]])
    assert found == {
        "pool_ce": 1.5,
        "pool_warning_ce": 0.5,
        "pool_tokens": 2,
        "pool_rows": 1,
    }
    assert pool_metrics([], [])["pool_ce"] is None
