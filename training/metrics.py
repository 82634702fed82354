"""What a step reports: one flat JSON object, names as in the ECHO reference (pitfall 14).

Every mean comes with the count behind it. Pure: works on rows, streams and statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from training.backends.base import OptimStats, PassStats
from training.losses import Streams
from training.types import ObjectiveSpec, Row, RowStatus, TokenKind

Metrics = dict[str, float | int | bool | str | None]


def step_metrics(
    *,
    rows: Sequence[Row],
    streams: Streams,
    spec: ObjectiveSpec,
    learning_rate: float,
    passes: PassStats,
    optim: OptimStats,
) -> Metrics:
    """Numbers of one optimiser step."""
    world_ce = passes.env_nll_sum / passes.n_env_tokens if passes.n_env_tokens else None
    weighted = None if passes.env_loss is None else spec.lambda_env * passes.env_loss
    return {
        "loss": passes.loss,
        "policy_loss": passes.policy_loss,
        "env_loss": passes.env_loss,
        "weighted_env_loss": weighted,
        "lambda": spec.lambda_env,
        "env_norm": spec.env_norm.value,
        "learning_rate": learning_rate,
        "n_rl": streams.n_rl,
        "n_ce": streams.n_env if streams.has_env else 0,
        "batch_size": streams.batch_size,
        "world_ce_selected_per_token": world_ce,
        "world_tokens_selected": streams.n_env,
        "world_tokens_warning": _count(rows, TokenKind.WARNING),
        "world_tokens_env": _count(rows, TokenKind.ENV_OUTPUT),
        "world_policy_loss_ratio": _ratio(weighted, passes.policy_loss),
        **_of_rewards(rows),
        "groups": streams.groups,
        "groups_without_spread": streams.groups_without_spread,
        **_of_observations(rows, streams),
        **_of_ratios(passes.log_ratios),
        **_of_clip(passes, streams),
        "entropy_mean": _mean(passes.entropies),
        "grad_norm": optim.grad_norm if math.isfinite(optim.grad_norm) else None,
        "is_skipped": optim.is_skipped,
        "row_tokens": passes.row_tokens,
        "packed_tokens": passes.packed_tokens,
        "packs": passes.packs,
        "halvings": passes.halvings,
        "update_s": passes.seconds,
        "tokens_per_s": passes.row_tokens / passes.seconds if passes.seconds > 0 else None,
    }


def pool_metrics(rows: Sequence[Row], logprobs_R: Sequence[Sequence[float]]) -> Metrics:
    """Surprise at the environment in a fixed pool, nats per token; warnings apart.

    `logprobs_R`: per row, of each target, so one fewer than its tokens.
    """
    sums = {TokenKind.ENV_OUTPUT: 0.0, TokenKind.WARNING: 0.0}
    counts = dict.fromkeys(sums, 0)
    for row, logprobs in zip(rows, logprobs_R, strict=True):
        for kind, value in zip(row.kinds[1:], logprobs, strict=True):
            if kind in sums:
                sums[kind] -= value
                counts[kind] += 1
    env, warning = (
        sums[kind] / counts[kind] if counts[kind] else None
        for kind in (TokenKind.ENV_OUTPUT, TokenKind.WARNING)
    )
    return {
        "pool_ce": env,
        "pool_warning_ce": warning,
        "pool_tokens": counts[TokenKind.ENV_OUTPUT],
        "pool_rows": len(rows),
    }


def rss_mb() -> float | None:
    """Resident memory of this process; None where /proc does not exist."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            pages = int(file.read().split()[1])
    except OSError:
        return None
    return pages * 4096 / 1e6


def _of_clip(passes: PassStats, streams: Streams) -> Metrics:
    """Share of policy tokens that the clip has cut, and the distance to the reference per token."""
    tokens = sum(len(stream.rl_targets) for stream in streams.rows)
    has_reference = tokens > 0 and any(stream.rl_reference for stream in streams.rows)
    return {
        "clip_share": passes.clipped / tokens if tokens else None,
        "kl_reference": passes.reference_kl_sum / tokens if has_reference else None,
    }


def _of_rewards(rows: Sequence[Row]) -> Metrics:
    rollouts = {row.rollout: row for row in rows if row.status is not RowStatus.PAD}
    scored = [row.reward for row in rollouts.values() if row.reward is not None]
    by_status = {
        status: sum(1 for row in rollouts.values() if row.status is status) for status in RowStatus
    }
    return {
        "rollouts": len(rollouts),
        "reward_mean": _mean(scored),
        "reward_n": len(scored),
        "reward_masked": len(rollouts) - len(scored),
        "rollouts_truncated": by_status[RowStatus.TRUNCATED],
        "rollouts_failed": by_status[RowStatus.FAILED],
        "rollouts_infrastructure": by_status[RowStatus.INFRASTRUCTURE],
    }


def _of_observations(rows: Sequence[Row], streams: Streams) -> Metrics:
    """Collapse alarms: observations that get shorter, or all the same."""
    lengths: list[int] = []
    distinct: set[tuple[int, ...]] = set()
    empty = 0
    for row, stream in zip(rows, streams.rows, strict=True):
        observation = stream.sets.observation
        if not observation:
            empty += 1
            continue
        lengths.append(len(observation))
        distinct.add(tuple(row.ids[t + 1] for t in observation))
    return {
        "observation_tokens_mean": _mean(lengths),
        "observation_distinct_share": len(distinct) / len(lengths) if lengths else None,
        "rows_without_observation_share": empty / len(rows) if rows else None,
    }


def _of_ratios(log_ratios: Sequence[float]) -> Metrics:
    """Mismatch between sampler and trainer: r = current / sampled probability."""
    n = len(log_ratios)
    if n == 0:
        return {"log_ratio_n": 0}
    mean = math.fsum(log_ratios) / n
    sizes = sorted(abs(value) for value in log_ratios)
    ratios = [math.exp(min(value, 50.0)) for value in log_ratios]
    return {
        "log_ratio_n": n,
        "log_ratio_mean": mean,
        "log_ratio_sd": math.sqrt(math.fsum((v - mean) ** 2 for v in log_ratios) / n),
        "log_ratio_p95": sizes[min(n - 1, int(0.95 * n))],
        "log_ratio_max": sizes[-1],
        "kl_k1": -mean,
        "kl_k3": math.fsum(r - 1.0 - v for r, v in zip(ratios, log_ratios, strict=True)) / n,
        "ratio_outside_share": sum(1 for r in ratios if not 0.9 <= r <= 1.1) / n,
    }


def _count(rows: Sequence[Row], kind: TokenKind) -> int:
    return sum(row.kinds.count(kind) for row in rows)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def _ratio(weighted_env: float | None, policy: float) -> float | None:
    if weighted_env is None or policy == 0.0:
        return None
    return abs(weighted_env) / abs(policy)
