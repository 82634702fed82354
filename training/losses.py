"""From rows to loss streams: which targets count, and with what weight.

L = sum over action targets of rl_weight * (loss(ratio, advantage) + kl_coef * kl)
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
    AdvantageMode,
    EnvNorm,
    EnvTarget,
    InfrastructureRows,
    KlKind,
    MismatchCorrection,
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
    """Empty where the advantage is 0 and no other term of the policy needs them: such tokens stay
    in the denominators only."""
    rl_weights: tuple[float, ...]
    """One per entry of rl_targets: 1 over the denominator, times the mismatch correction."""
    rl_old_logprobs: tuple[float, ...] | None
    """What the ratio is taken to, one per entry of rl_targets; None: current equals old."""
    rl_reference: tuple[float, ...] | None
    """The reference policy's, one per entry of rl_targets; None unless there is a KL loss."""
    env_targets: tuple[int, ...]
    """Empty when lambda is 0."""
    env_weights: tuple[float, ...]
    """One per entry of env_targets: lambda of its role over the denominator."""


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

    rl_size = _RlSize.of(rows, sets, advantages, in_rl, spec, len(batch), n_rl)
    streams = []
    for row, s, advantage, has_rl in zip(rows, sets, advantages, in_rl, strict=True):
        trains_rl = (
            spec.use_rl
            and has_rl
            and (advantage != 0.0 or has_policy_penalty(spec))
            and (spec.truncated_in_rl or row.status is not RowStatus.TRUNCATED)
        )
        rl_targets = s.actions if trains_rl else ()
        env_targets = s.env_targets if spec.lambda_env != 0.0 else ()
        streams.append(
            RowStream(
                sets=s,
                advantage=advantage,
                rl_targets=rl_targets,
                rl_weights=_rl_weights(row, rl_targets, spec, lengths, rl_size),
                rl_old_logprobs=_old_logprobs(row, rl_targets, spec),
                rl_reference=_reference(row, rl_targets, spec),
                env_targets=env_targets,
                env_weights=_env_weights(row, env_targets, spec, lengths, len(batch), n_env)
                if env_targets
                else (),
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
    shares = role_shares(spec)
    untrained = frozenset(row.untrained)
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
        if row.trains_env and shares[kind] != 0.0 and (cap is None or taken < cap):
            if t + 1 in untrained:
                continue
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


def role_shares(spec: ObjectiveSpec) -> dict[TokenKind, float]:
    """What lambda is multiplied by for each kind of observation token."""
    default = {
        TokenKind.ENV_OUTPUT: 1.0,
        TokenKind.WARNING: 1.0 if spec.env_target is EnvTarget.ALL else 0.0,
    }
    return {kind: float(spec.lambda_roles.get(kind.value, default[kind])) for kind in _OBSERVED}


@dataclass(frozen=True, slots=True)
class _RlSize:
    """What the policy term is averaged over."""

    rollouts: int
    tokens: int

    @classmethod
    def of(
        cls,
        rows: Sequence[Row],
        sets: Sequence[TargetSets],
        advantages: Sequence[float | None],
        in_rl: Sequence[bool],
        spec: ObjectiveSpec,
        batch_size: int,
        n_rl: int,
    ) -> _RlSize:
        if spec.advantage.mode is not AdvantageMode.SUCCESS:
            return cls(batch_size, n_rl)
        # Supervised training on successes is the mean over these, however rare they are.
        chosen = [
            (row, s)
            for row, s, advantage, has in zip(rows, sets, advantages, in_rl, strict=True)
            if has and advantage
        ]
        return cls(len({row.rollout for row, _ in chosen}), sum(len(s.actions) for _, s in chosen))


def _rl_weights(
    row: Row, targets: Sequence[int], spec: ObjectiveSpec, lengths: _Lengths, size: _RlSize
) -> tuple[float, ...]:
    if not targets:
        return ()
    weight = 1.0 / _pg_denominator(row, spec, lengths, size)
    return tuple(weight * factor for factor in _correction(row, targets, spec))


def _pg_denominator(row: Row, spec: ObjectiveSpec, lengths: _Lengths, size: _RlSize) -> float:
    match spec.pg_norm:
        case PgNorm.SEQUENCE_MEAN:
            return float(max(size.rollouts, 1) * max(lengths.actions[row.rollout], 1))
        case PgNorm.TOKEN_MEAN:
            return float(max(size.tokens, 1))
        case PgNorm.MAX_SEQ_LEN:
            assert spec.max_seq_len is not None
            return float(max(size.rollouts, 1) * spec.max_seq_len)


def _correction(row: Row, targets: Sequence[int], spec: ObjectiveSpec) -> list[float]:
    """Weights that undo the difference between sampler and trainer at equal weights; constants."""
    own, sampled = row.trainer_logprobs, row.logprobs
    if spec.mismatch is MismatchCorrection.NONE or own is None or sampled is None:
        return [1.0] * len(targets)
    gaps = [own[t + 1] - sampled[t + 1] for t in targets]
    if spec.mismatch is MismatchCorrection.TRUNCATE:
        return [math.exp(min(gap, math.log(spec.importance_cap))) for gap in gaps]
    is_kept = abs(math.fsum(gaps)) <= math.log(spec.importance_cap)
    return [1.0 if is_kept else 0.0] * len(targets)


def _old_logprobs(
    row: Row, targets: Sequence[int], spec: ObjectiveSpec
) -> tuple[float, ...] | None:
    old = row.logprobs
    if spec.mismatch is not MismatchCorrection.NONE and row.trainer_logprobs is not None:
        old = row.trainer_logprobs
    return None if old is None else tuple(old[t + 1] for t in targets)


def has_policy_penalty(spec: ObjectiveSpec) -> bool:
    """Whether action tokens count even where the advantage is 0."""
    has_kl_loss = spec.kl_coef != 0.0 and spec.kl_kind is KlKind.K3
    return has_kl_loss or spec.log_ratio_penalty != 0.0


def _reference(row: Row, targets: Sequence[int], spec: ObjectiveSpec) -> tuple[float, ...] | None:
    if not targets or spec.kl_coef == 0.0 or spec.kl_kind is not KlKind.K3:
        return None
    reference = _needed_reference(row)
    return tuple(reference[t + 1] for t in targets)


def _needed_reference(row: Row) -> tuple[float, ...]:
    if row.reference_logprobs is None:
        raise ConfigurationError(
            f"kl_coef: rollout {row.rollout} has no reference log-probs; score the rows with the "
            "reference policy first (training.reference)"
        )
    return row.reference_logprobs


def _env_weights(
    row: Row,
    targets: Sequence[int],
    spec: ObjectiveSpec,
    lengths: _Lengths,
    batch_size: int,
    n_env: int,
) -> tuple[float, ...]:
    weight = spec.lambda_env / _env_denominator(row, spec, lengths, batch_size, n_env)
    by_kind = {kind: weight * share for kind, share in role_shares(spec).items()}
    return tuple(by_kind[row.kinds[t + 1]] for t in targets)


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
    for name, share in spec.lambda_roles.items():
        if name not in _OBSERVED:
            raise ConfigurationError(f"lambda_roles: {name!r} is not one of env_output, warning")
        if not (math.isfinite(share) and share >= 0.0):
            raise ConfigurationError(f"lambda_roles.{name}: {share} is not a number from 0 on")


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
    if spec.kl_coef != 0.0 and spec.kl_kind is KlKind.K1:
        for row in rows:
            if row.rollout in scored and row.status is not RowStatus.INFRASTRUCTURE:
                group, reward = scored[row.rollout]
                scored[row.rollout] = group, reward - spec.kl_coef * _sampled_distance(row)
    return scored


def _sampled_distance(row: Row) -> float:
    """Sum over the action tokens of log p_sampler - log p_reference."""
    reference = _needed_reference(row)
    if row.logprobs is None:
        raise ConfigurationError(
            f"kl_kind k1: rollout {row.rollout} has no log-probs of its sampler"
        )
    return math.fsum(
        sampled - other
        for kind, sampled, other in zip(row.kinds, row.logprobs, reference, strict=True)
        if kind is TokenKind.ACTION
    )


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
