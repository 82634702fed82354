"""From the rollouts of a training step to training rows, token for token as they were sampled."""

from __future__ import annotations

from typing import Any

from orchestrator.runs.models import Rollout, RolloutState, Run, TokenRow

AGENTS_OWN_FAULT = frozenset({"action_rejected"})
"""Causes for which an errored rollout is the agent's doing: its observations still teach."""


def rows_of_run(run: Run, *, weight_version: str) -> list[dict[str, Any]]:
    """Records of `training.rows`, one per token row; rollouts without tokens have none.

    A row that other weights sampled than the run asked for would be off-policy: it is left out.
    """
    expected = run.adapter_name or run.model.model
    rows = (
        TokenRow.objects.filter(rollout__run=run, weight_version=expected)
        .select_related("rollout__task")
        .order_by("rollout_id", "index")
    )
    return [_record(row, weight_version) for row in rows]


def _record(row: TokenRow, weight_version: str) -> dict[str, Any]:
    rollout = row.rollout
    kinds = [kind for kind, count in row.kinds for _ in range(count)]
    sampled = iter(row.logprobs)
    return {
        "rollout": str(rollout.pk),
        "group": rollout.task.key,
        "reward": rollout.score,
        "status": _status(rollout),
        "ids": row.ids,
        "kinds": kinds,
        "logprobs": [next(sampled) if kind == "action" else 0.0 for kind in kinds],
        "weight_version": weight_version,
    }


def _status(rollout: Rollout) -> str:
    if rollout.state == RolloutState.SCORED:
        return "ok"
    return "failed" if rollout.cause in AGENTS_OWN_FAULT else "infrastructure"
