"""From the rollouts of a training step to training rows, token for token as they were sampled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.runs.models import Rollout, RolloutState, Run, TokenRow

AGENTS_OWN_FAULT = frozenset({"action_rejected"})
"""Causes for which an errored rollout is the agent's doing: its observations still teach."""


def rows_of_run(
    run: Run, rewards: Mapping[int, float | None], *, weight_version: str
) -> list[dict[str, Any]]:
    """Records of `training.rows`, one per token row; rollouts without tokens have none.

    A row that other weights sampled than the run asked for would be off-policy: it is left out.
    `rewards`: by rollout, what each is worth to whoever learns.
    """
    expected = run.adapter_name or run.model.model
    rows = (
        TokenRow.objects.filter(rollout__run=run, weight_version=expected)
        .select_related("rollout__task")
        .order_by("rollout_id", "index")
    )
    return [_record(row, weight_version, rewards[row.rollout_id]) for row in rows]


def _record(row: TokenRow, weight_version: str, reward: float | None) -> dict[str, Any]:
    rollout = row.rollout
    kinds = [kind for kind, count in row.kinds for _ in range(count)]
    sampled = iter(row.logprobs)
    return {
        "rollout": str(rollout.pk),
        "group": rollout.task.key,
        "reward": reward,
        "status": _status(rollout, reward),
        "ids": row.ids,
        "kinds": kinds,
        "logprobs": [next(sampled) if kind == "action" else 0.0 for kind in kinds],
        "weight_version": weight_version,
    }


def _status(rollout: Rollout, reward: float | None) -> str:
    if reward is not None:
        return "ok"
    # It ended well and has no reward once barred criteria are left out: what it saw still teaches.
    if rollout.state == RolloutState.SCORED:
        return "failed"
    return "failed" if rollout.cause in AGENTS_OWN_FAULT else "infrastructure"
