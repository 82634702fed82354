"""What the trainer's own functions compute for a test vector: one function per kind of case.

`training.check` compares the values with what is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from training import objective
from training.comparing import Values
from training.credit import group_advantages
from training.filters import incorrect_kept, turn_quality
from training.head import chunked_logprobs, token_logprobs
from training.losses import Streams, build_streams
from training.rows import Node, count_once, node_weights
from training.schedule import CoefficientSchedule
from training.types import (
    EnvNorm,
    EnvTarget,
    ObjectiveSpec,
    Row,
    RowStatus,
    TokenKind,
    TurnCounts,
)
from training.vectors import (
    ROLES,
    advantage_of,
    floats,
    number_or_none,
    row_of,
    rows_of,
    spec_of,
    token_rows_of,
)


def _objective_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    rows = rows_of(given["rollouts"])
    spec = spec_of(given)
    streams = build_streams(rows, spec)
    logprobs_R = leaves_of([r["logprobs"] for r in given["rollouts"]], dtype)
    parts = objective.from_logprobs(logprobs_R, streams.rows, spec)
    values = _loss_values(streams, parts)
    values["grad_logprobs"] = _gradients(parts.loss, logprobs_R)
    values["_connected"] = parts.loss.requires_grad
    values["_bits"] = [parts.loss.detach(), *[grad_of(leaf) for leaf in logprobs_R]]
    return values


def _logits_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    sequences = given["sequences"]
    rows = token_rows_of(sequences)
    spec = spec_of(given)
    streams = build_streams(rows, spec)
    logits_R = leaves_of([s["logits"] for s in sequences], dtype)
    ids_R = [s["token_ids"] for s in sequences]
    parts = objective.from_logits(logits_R, ids_R, streams.rows, spec)
    values = _loss_values(streams, parts)
    values["grad_logits"] = _gradients(parts.loss, logits_R)
    values["target_logprobs"] = [
        _target_logprobs(logits.detach(), row, spec)
        for logits, row in zip(logits_R, rows, strict=True)
    ]
    values["nonzero_grad_rows"] = [
        [i, t]
        for i, logits in enumerate(logits_R)
        for t in range(logits.shape[0])
        if bool((grad_of(logits)[t] != 0).any())
    ]
    values["_connected"] = parts.loss.requires_grad
    values["_bits"] = [parts.loss.detach(), *[grad_of(leaf) for leaf in logits_R]]
    values["_head"] = _head_gradients(logits_R, ids_R, streams, spec)
    return values


def _target_logprobs(logits_TV: Tensor, row: Row, spec: ObjectiveSpec) -> list[float]:
    result: list[float] = []
    for t in range(len(row.ids) - 1):
        is_action = row.kinds[t + 1] is TokenKind.ACTION
        temperature = spec.policy_temperature if is_action else spec.env_temperature
        target = torch.tensor([row.ids[t + 1]])
        result.append(float(token_logprobs(logits_TV[t : t + 1], target, temperature)[0]))
    return result


def _head_gradients(
    logits_R: Sequence[Tensor],
    ids_R: Sequence[Sequence[int]],
    streams: Streams,
    spec: ObjectiveSpec,
) -> list[list[list[float]]] | None:
    """The same gradient through the chunked head, with the identity as its weight."""
    if not all(bool(torch.isfinite(logits).all()) for logits in logits_R):
        return None  # infinity times the zeros of the identity is nan
    leaves = [logits.detach().clone().requires_grad_() for logits in logits_R]
    total = torch.zeros((), dtype=leaves[0].dtype)
    for leaf, ids, stream in zip(leaves, ids_R, streams.rows, strict=True):
        identity = torch.eye(leaf.shape[1], dtype=leaf.dtype)

        def logprobs(
            targets: Sequence[int],
            temperature: float,
            hidden: Tensor = leaf,
            weight: Tensor = identity,
            tokens: Sequence[int] = ids,
        ) -> Tensor:
            wanted = torch.tensor([tokens[t + 1] for t in targets], dtype=torch.long)
            rows = torch.tensor(targets, dtype=torch.long)
            return chunked_logprobs(hidden[rows], weight, wanted, temperature=temperature, chunk=3)

        policy = objective.policy_targets([stream], dtype=leaf.dtype)
        rl_N = logprobs(stream.rl_targets, spec.policy_temperature)
        total = total + objective.policy_loss(rl_N, policy, spec)
        if streams.has_env:
            env_N = logprobs(stream.env_targets, spec.env_temperature)
            weights = objective.env_weights([stream], dtype=leaf.dtype)
            total = total + objective.env_loss(env_N, weights)
    gradients = _gradients(total, leaves)
    assert isinstance(gradients, list)
    return gradients


def _advantage_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    values = group_advantages(
        groups=[str(group) for group in given["groups"]],
        rewards=[number_or_none(reward) for reward in given["rewards"]],
        spec=advantage_of(given["advantage"]),
    )
    return {"advantages": [_rounded(value, dtype) for value in values]}


def _schedule_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    schedule = CoefficientSchedule.from_mapping(given)
    return {
        "coefficients": [_rounded(schedule.value(step), dtype) for step in given["steps_to_check"]]
    }


def _filter_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    qualities = [turn_quality(TurnCounts(**counts)) for counts in given.get("turn_quality") or []]
    return {
        "turn_quality": [
            {"valid_tool_call": _rounded(valid, dtype), "parse_clean": _rounded(clean, dtype)}
            for valid, clean in qualities
        ],
        "correctness": [
            {"incorrect_kept": incorrect_kept(**group)} for group in given.get("correctness") or []
        ],
    }


def _role_weight_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    nodes = [
        Node(
            role=node["role"],
            is_sampled=node["sampled"],
            n_tokens=node["n_tokens"],
            content=None if node.get("content") is None else tuple(node["content"]),
        )
        for node in case["input"]["nodes"]
    ]
    weights = node_weights(nodes, case["input"]["role_weights"])
    return {"weights": [_rounded(weight, dtype) for weight in weights]}


def _shared_prefix_values(case: Mapping[str, Any], dtype: torch.dtype) -> Values:
    given = case["input"]
    branches = given["branches"]
    rows = [
        row_of(
            rollout="tree",
            group="tree",
            reward=None,
            status=RowStatus.OK,
            kinds=[TokenKind.CONTEXT, *(ROLES[node["role"]] for node in branch)],
        )
        for branch in branches
    ]
    start = object()
    keys = [[start, *(node["token"] for node in branch)] for branch in branches]
    spec = ObjectiveSpec(
        lambda_env=1.0,
        env_norm=EnvNorm(given["env_norm"]),
        env_eps=float(given.get("env_eps", 0.0)),
        env_target=EnvTarget(given.get("env_target", "env_only")),
        max_seq_len=given.get("max_seq_len"),
    )
    streams = build_streams(count_once(rows, keys), spec)
    logprobs_R = leaves_of([[node["logprob"] for node in branch] for branch in branches], dtype)
    parts = objective.from_logprobs(logprobs_R, streams.rows, spec)
    return {"env_tokens": streams.n_env, "loss_env": _env_value(parts)}


KINDS: dict[str, Callable[[Mapping[str, Any], torch.dtype], Values]] = {
    "objective": _objective_values,
    "logits": _logits_values,
    "advantage": _advantage_values,
    "schedule": _schedule_values,
    "rollout_filter": _filter_values,
    "role_weights": _role_weight_values,
    "shared_prefix": _shared_prefix_values,
}


def leaves_of(tables: Sequence[Any], dtype: torch.dtype) -> list[Tensor]:
    """Tensors that gradients are asked of."""
    return [torch.tensor(floats(table), dtype=dtype, requires_grad=True) for table in tables]


def _rounded(value: float | None, dtype: torch.dtype) -> float | None:
    return None if value is None else float(torch.tensor(value, dtype=dtype))


def grad_of(leaf: Tensor) -> Tensor:
    """Zero where nothing reached it."""
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad


def _gradients(loss: Tensor, leaves: Sequence[Tensor]) -> Any:
    loss.backward()  # type: ignore[no-untyped-call]
    return [grad_of(leaf).tolist() for leaf in leaves]


def _env_value(parts: objective.LossParts) -> float | None:
    return None if parts.env is None else float(parts.env)


def _loss_values(streams: Streams, parts: objective.LossParts) -> Values:
    return {
        "batch_size": streams.batch_size,
        "counts": {
            "action": [len(s.sets.actions) for s in streams.rows],
            "env_target": [len(s.sets.env_targets) for s in streams.rows],
            "observation": [len(s.sets.observation) for s in streams.rows],
        },
        "advantages": [_rounded(s.advantage, parts.loss.dtype) for s in streams.rows],
        "loss_pg": float(parts.policy),
        "loss_env": _env_value(parts),
        "loss": float(parts.loss.detach()),
    }


def is_finite(tensors: Sequence[Tensor]) -> bool:
    """Of every number in them."""
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors)
