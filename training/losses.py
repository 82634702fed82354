"""From rows to loss streams: which targets count, and with what weight.

L = sum over action targets of rl_weight * loss(ratio, advantage)
  + sum over environment targets of env_weight * (-log p)

Denominators are global: taken once per optimiser step over all rows, micro-batches and ranks, and
already inside the weights. A trainer therefore only sums, in whatever pieces it likes, and adding
observation tokens never dilutes the policy term. Lambda 0 leaves the environment stream out
altogether; multiplying by 0 would turn one impossible token into nan.

A rollout of several rows counts once: its lengths are summed over its rows. Indices run over
targets: target t predicts token t + 1 of the row. Source of the definitions: ECHO, arXiv
2605.24517, equations 1 and 3, and the file format echo-vectors/1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from training.credit import group_advantages, has_spread
from training.errors import ConfigurationError
from training.types import (
    EnvNorm,
    EnvTarget,
    InfrastructureRows,
    ObjectiveSpec,
    PgNorm,
    Row,
    RowStatus,
    TokenKind,
)

_OBSERVED = (TokenKind.ENV_OUTPUT, TokenKind.WARNING)


@dataclass(frozen=True, slots=True)
class TargetSets:
    """Positions of one row by set, after the cut."""

    actions: tuple[int, ...]
    env_targets: tuple[int, ...]
    observation: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowStream:
    """What one row adds to the loss. Weights are divided by their denominators already."""

    sets: TargetSets
    advantage: float | None
    """None: the rollout has no score, or the row is ignored."""
    rl_targets: tuple[int, ...]
    """Empty where the advantage is 0: such tokens stay in the denominators only."""
    rl_weight: float
    rl_old_logprobs: tuple[float, ...] | None
    """The sampler's, one per entry of rl_targets; None: current equals old."""
    env_targets: tuple[int, ...]
    """Empty when lambda is 0."""
    env_weight: float
    """Lambda over the denominator."""


@dataclass(frozen=True, slots=True)
class Streams:
    """All rows of one optimiser step, and what the weights were divided by."""

    rows: tuple[RowStream, ...]
    lambda_env: float
    batch_size: int
    """Rollouts that count (B)."""
    n_rl: int
    """Action tokens of rollouts with a score."""
    n_env: int
    """Environment targets."""
    groups: int
    groups_without_spread: int

    @property
    def has_env(self) -> bool:
        """Whether the environment term exists in this step."""
        return self.lambda_env != 0.0


def build_streams(rows: Sequence[Row], spec: ObjectiveSpec) -> Streams:
    """Streams of one optimiser step from all its rows, over all micro-batches and ranks."""
    _validate(spec)
    sets = [target_sets(row, spec) for row in rows]
    counted = [counts_in_batch(row, spec) for row in rows]
    advantages = _row_advantages(rows, spec)
    in_rl = [
        is_counted and advantage is not None
        for is_counted, advantage in zip(counted, advantages, strict=True)
    ]
    batch = {row.rollout for row, is_counted in zip(rows, counted, strict=True) if is_counted}
    lengths = _Lengths.of(rows, sets, counted)
    n_rl = sum(len(s.actions) for s, has in zip(sets, in_rl, strict=True) if has)
    n_env = sum(len(s.env_targets) for s in sets)

    streams = []
    for row, s, advantage, has_rl in zip(rows, sets, advantages, in_rl, strict=True):
        trains_rl = (
            spec.use_rl
            and has_rl
            and advantage != 0.0
            and (spec.truncated_in_rl or row.status is not RowStatus.TRUNCATED)
        )
        rl_targets = s.actions if trains_rl else ()
        env_targets = s.env_targets if spec.lambda_env != 0.0 else ()
        old = row.logprobs
        streams.append(
            RowStream(
                sets=s,
                advantage=advantage,
                rl_targets=rl_targets,
                rl_weight=1.0 / _pg_denominator(row, spec, lengths, len(batch), n_rl)
                if rl_targets
                else 0.0,
                rl_old_logprobs=None if old is None else tuple(old[t + 1] for t in rl_targets),
                env_targets=env_targets,
                env_weight=spec.lambda_env / _env_denominator(row, spec, lengths, len(batch), n_env)
                if env_targets
                else 0.0,
            )
        )
    groups, flat = _count_groups(rows, spec)
    return Streams(
        rows=tuple(streams),
        lambda_env=spec.lambda_env,
        batch_size=len(batch),
        n_rl=n_rl,
        n_env=n_env,
        groups=groups,
        groups_without_spread=flat,
    )


def counts_in_batch(row: Row, spec: ObjectiveSpec) -> bool:
    """Whether a row's rollout is one of the B rollouts."""
    if row.status is RowStatus.PAD:
        return False
    if row.status is RowStatus.INFRASTRUCTURE:
        return spec.infrastructure is InfrastructureRows.COUNT
    return True


def target_sets(row: Row, spec: ObjectiveSpec) -> TargetSets:
    """Sets A, O' and O of one row. Dummy and infrastructure rows have none."""
    if row.status in (RowStatus.PAD, RowStatus.INFRASTRUCTURE):
        return TargetSets((), (), ())
    kinds = row.kinds[1:]
    if spec.cut is not None:
        kinds = kinds[: spec.cut]
    wanted = _OBSERVED if spec.env_target is EnvTarget.ALL else (TokenKind.ENV_OUTPUT,)
    cap = spec.max_env_tokens_per_observation
    actions, env_targets, observation = [], [], []
    taken = 0
    for t, kind in enumerate(kinds):
        if kind not in _OBSERVED:
            taken = 0
            if kind is TokenKind.ACTION:
                actions.append(t)
            continue
        observation.append(t)
        if row.trains_env and kind in wanted and (cap is None or taken < cap):
            env_targets.append(t)
            taken += 1
    return TargetSets(tuple(actions), tuple(env_targets), tuple(observation))


@dataclass(frozen=True, slots=True)
class _Lengths:
    """Set sizes per rollout, summed over its rows."""

    actions: dict[str, int]
    env_targets: dict[str, int]
    observation: dict[str, int]

    @classmethod
    def of(
        cls, rows: Sequence[Row], sets: Sequence[TargetSets], counted: Sequence[bool]
    ) -> _Lengths:
        lengths = cls({}, {}, {})
        for row, s, is_counted in zip(rows, sets, counted, strict=True):
            if not is_counted:
                continue
            for table, targets in (
                (lengths.actions, s.actions),
                (lengths.env_targets, s.env_targets),
                (lengths.observation, s.observation),
            ):
                table[row.rollout] = table.get(row.rollout, 0) + len(targets)
        return lengths


def _pg_denominator(
    row: Row, spec: ObjectiveSpec, lengths: _Lengths, batch_size: int, n_rl: int
) -> float:
    match spec.pg_norm:
        case PgNorm.SEQUENCE_MEAN:
            return float(batch_size * max(lengths.actions[row.rollout], 1))
        case PgNorm.TOKEN_MEAN:
            return float(max(n_rl, 1))
        case PgNorm.MAX_SEQ_LEN:
            assert spec.max_seq_len is not None
            return float(batch_size * spec.max_seq_len)


def _env_denominator(
    row: Row, spec: ObjectiveSpec, lengths: _Lengths, batch_size: int, n_env: int
) -> float:
    match spec.env_norm:
        case EnvNorm.FULL_OBSERVATION_TOKENS:
            return batch_size * _floor(lengths.observation[row.rollout], spec.env_eps)
        case EnvNorm.SELECTED_TOKENS:
            return batch_size * _floor(lengths.env_targets[row.rollout], spec.env_eps)
        case EnvNorm.GLOBAL_TOKENS:
            return _floor(n_env, spec.env_eps)
        case EnvNorm.MAX_SEQ_LEN:
            assert spec.max_seq_len is not None
            return float(batch_size * spec.max_seq_len)
        case EnvNorm.NONEMPTY_SEQUENCE_MEAN:
            nonempty = sum(1 for n in lengths.env_targets.values() if n > 0)
            return float(nonempty * lengths.env_targets[row.rollout])
        case EnvNorm.RAW_SUM:
            return 1.0


def _floor(count: int, eps: float) -> float:
    return count + eps if eps > 0.0 else float(max(count, 1))


def _validate(spec: ObjectiveSpec) -> None:
    needs_length = PgNorm.MAX_SEQ_LEN is spec.pg_norm or EnvNorm.MAX_SEQ_LEN is spec.env_norm
    if needs_length and not spec.max_seq_len:
        raise ConfigurationError("max_seq_len: needed by the normalisation max_seq_len")
    if not (math.isfinite(spec.lambda_env) and spec.lambda_env >= 0.0):
        raise ConfigurationError(f"lambda: {spec.lambda_env} is not a number from 0 on")


def _scored_rollouts(rows: Sequence[Row], spec: ObjectiveSpec) -> dict[str, tuple[str, float]]:
    """Group and reward of each rollout that has a finite reward and enters the statistics."""
    scored: dict[str, tuple[str, float]] = {}
    for row in rows:
        reward = row.reward
        if not counts_in_batch(row, spec):
            continue
        if row.status is RowStatus.INFRASTRUCTURE:
            reward = 0.0
        if reward is not None and math.isfinite(reward):
            scored.setdefault(row.rollout, (row.group, reward))
    return scored


def _row_advantages(rows: Sequence[Row], spec: ObjectiveSpec) -> list[float | None]:
    scored = _scored_rollouts(rows, spec)
    values = group_advantages(
        groups=[group for group, _ in scored.values()],
        rewards=[reward for _, reward in scored.values()],
        spec=spec.advantage,
    )
    advantages = dict(zip(scored, values, strict=True))
    return [advantages.get(row.rollout) if counts_in_batch(row, spec) else None for row in rows]


def _count_groups(rows: Sequence[Row], spec: ObjectiveSpec) -> tuple[int, int]:
    groups: dict[str, list[float]] = {}
    for group, reward in _scored_rollouts(rows, spec).values():
        groups.setdefault(group, []).append(reward)
    return len(groups), sum(1 for scores in groups.values() if not has_spread(scores))
