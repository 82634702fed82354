"""Test vectors of format echo-vectors/1, read: rows and objectives from their JSON.

Pure. `training.check` runs them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from training.types import (
    AdvantageMode,
    AdvantageSpec,
    EnvNorm,
    EnvTarget,
    GroupOfOne,
    ObjectiveSpec,
    PgNorm,
    PolicyLoss,
    Row,
    RowStatus,
    TokenKind,
)

FORMAT = "echo-vectors/1"
ROLES = {
    "A": TokenKind.ACTION,
    "E": TokenKind.ENV_OUTPUT,
    "W": TokenKind.WARNING,
    "C": TokenKind.CONTEXT,
    "S": TokenKind.SCAFFOLD,
    "P": TokenKind.PAD,
}


def spec_of(given: Mapping[str, Any]) -> ObjectiveSpec:
    """The objective of a case."""
    return ObjectiveSpec(
        lambda_env=float(given["lambda"]),
        env_norm=EnvNorm(given["env_norm"]),
        env_eps=float(given.get("env_eps") or 0.0),
        env_target=EnvTarget(given.get("env_target", "env_only")),
        max_env_tokens_per_observation=given.get("max_env_tokens_per_observation"),
        env_temperature=float(given.get("env_temperature", 1.0)),
        policy_temperature=float(given.get("policy_temperature", 1.0)),
        policy_loss=PolicyLoss.PPO_CLIP,
        pg_norm=PgNorm(given["pg_norm"]),
        clip_low=float(given["clip"]["low"]),
        clip_high=float(given["clip"]["high"]),
        use_rl=bool(given.get("use_rl", True)),
        max_seq_len=given.get("max_seq_len"),
        cut=given.get("cut"),
        advantage=advantage_of(given["advantage"]),
    )


def advantage_of(given: Mapping[str, Any]) -> AdvantageSpec:
    """How a case turns rewards into advantages."""
    return AdvantageSpec(
        mode=AdvantageMode.STD if given["std"] else AdvantageMode.CENTRE,
        eps=float(given["eps"]),
        group_of_one=GroupOfOne.REWARD,
    )


def rows_of(rollouts: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows from target lists: a context token goes in front, since it is never a target."""
    rows = []
    for number, rollout in enumerate(rollouts):
        old = rollout.get("old_logprobs")
        kinds = [TokenKind.CONTEXT, *(ROLES[role] for role in rollout["roles"])]
        row = row_of(
            rollout=str(number),
            group=str(rollout["group"]),
            reward=number_or_none(rollout["reward"]),
            status=RowStatus(rollout["status"]),
            kinds=kinds,
        )
        logprobs = None if old is None else (0.0, *(float(value) for value in old))
        rows.append(replace(row, logprobs=logprobs))
    return rows


def token_rows_of(sequences: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Rows from token lists; their old log-probs, if any, run over targets or over tokens."""
    rows = []
    for number, sequence in enumerate(sequences):
        row = row_of(
            rollout=str(number),
            group=str(sequence["group"]),
            reward=number_or_none(sequence["reward"]),
            status=RowStatus(sequence["status"]),
            kinds=[ROLES[role] for role in sequence["roles"]],
        )
        old = sequence.get("old_logprobs")
        if old is not None:
            values = tuple(float(value) for value in old)
            values = (0.0, *values) if len(values) == len(row.kinds) - 1 else values
            row = replace(row, logprobs=values)
        rows.append(replace(row, ids=tuple(sequence["token_ids"])))
    return rows


def row_of(
    *,
    rollout: str,
    group: str,
    reward: float | None,
    status: RowStatus,
    kinds: Sequence[TokenKind],
) -> Row:
    """A row of so many tokens; which ones does not matter."""
    return Row(
        rollout=rollout,
        group=group,
        reward=reward,
        status=status,
        ids=(0,) * len(kinds),
        kinds=tuple(kinds),
        logprobs=None,
    )


def number_or_none(value: Any) -> float | None:
    """None stays what it is."""
    return None if value is None else float(value)


def floats(value: Any) -> Any:
    """Nested lists with the strings -inf and nan turned into numbers."""
    if isinstance(value, list):
        return [floats(item) for item in value]
    return float(value)
