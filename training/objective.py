"""The loss itself, on log-probs and on logits: the normative definition, and what the trainer runs.

Streams say which targets count and carry weights that are divided already, so everything here is a
sum. Constants are the advantages, the sampler's log-probs, masks and denominators; the environment
term has neither ratio nor clip nor advantage, because a stored log-prob of 0.0 on a token that was
not sampled would silently remove its gradient.

Axis: N selected targets (over all rows of a piece, in the order of the rows).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from training.head import token_logprobs
from training.losses import RowStream
from training.types import KlKind, ObjectiveSpec, PolicyLoss


@dataclass(frozen=True, slots=True)
class PolicyTargets:
    """Constants of the policy term, one entry per selected action target."""

    weights_N: Tensor
    advantages_N: Tensor
    old_logprobs_N: Tensor
    """nan where the current policy is the sampler."""
    reference_N: Tensor
    """nan where there is no KL loss."""

    def part(self, start: int, stop: int) -> PolicyTargets:
        """Targets start to stop."""
        return PolicyTargets(
            self.weights_N[start:stop],
            self.advantages_N[start:stop],
            self.old_logprobs_N[start:stop],
            self.reference_N[start:stop],
        )


@dataclass(frozen=True, slots=True)
class LossParts:
    """Loss of a piece of the step; pieces add up."""

    loss: Tensor
    """Differentiable; connected to the graph even when nothing is selected."""
    policy: Tensor
    """Policy term, detached."""
    env: Tensor | None
    """Environment term without lambda, detached; None when lambda is 0."""


def policy_targets(
    streams: Sequence[RowStream], *, dtype: torch.dtype, device: torch.device | None = None
) -> PolicyTargets:
    """Tensors of the policy stream of some rows."""
    weights: list[float] = []
    advantages: list[float] = []
    old: list[float] = []
    reference: list[float] = []
    for stream in streams:
        n = len(stream.rl_targets)
        if n == 0 or stream.advantage is None:
            continue
        weights.extend(stream.rl_weights)
        advantages.extend([stream.advantage] * n)
        old.extend(_or_nan(stream.rl_old_logprobs, n))
        reference.extend(_or_nan(stream.rl_reference, n))
    return PolicyTargets(
        torch.tensor(weights, dtype=dtype, device=device),
        torch.tensor(advantages, dtype=dtype, device=device),
        torch.tensor(old, dtype=dtype, device=device),
        torch.tensor(reference, dtype=dtype, device=device),
    )


def _or_nan(values: Sequence[float] | None, n: int) -> Sequence[float]:
    return [float("nan")] * n if values is None else values


def env_weights(
    streams: Sequence[RowStream], *, dtype: torch.dtype, device: torch.device | None = None
) -> Tensor:
    """Weights of the environment stream of some rows, lambda included."""
    weights = [weight for stream in streams for weight in stream.env_weights]
    return torch.tensor(weights, dtype=dtype, device=device)


def policy_loss(logprobs_N: Tensor, targets: PolicyTargets, spec: ObjectiveSpec) -> Tensor:
    """Weighted sum of the per-token policy losses."""
    old_N = torch.where(
        torch.isnan(targets.old_logprobs_N), logprobs_N.detach(), targets.old_logprobs_N
    )
    ratio_N = torch.exp(logprobs_N - old_N)
    low, high = 1.0 - spec.clip_low, 1.0 + spec.clip_high
    adv_N = targets.advantages_N
    match spec.policy_loss:
        case PolicyLoss.PPO_CLIP:
            gain_N = torch.minimum(ratio_N * adv_N, ratio_N.clamp(low, high) * adv_N)
        case PolicyLoss.REINFORCE:
            gain_N = logprobs_N * adv_N
        case PolicyLoss.IMPORTANCE:
            gain_N = ratio_N * adv_N
        case PolicyLoss.TRUNCATED_IMPORTANCE:
            gain_N = ratio_N.detach().clamp(max=spec.importance_cap) * logprobs_N * adv_N
        case PolicyLoss.CISPO:
            gain_N = ratio_N.detach().clamp(low, high) * logprobs_N * adv_N
        case PolicyLoss.DPPO:
            is_masked_N = _dppo_mask(logprobs_N, old_N, adv_N, spec)
            gain_N = torch.where(is_masked_N, 0.0, ratio_N * adv_N)
    if spec.kl_coef != 0.0 and spec.kl_kind is KlKind.K3:
        log_r_N = targets.reference_N - logprobs_N
        kl_N = torch.exp(log_r_N) - 1.0 - log_r_N
        # The ratio makes the estimate, and with it the gradient, that of the current policy.
        gain_N = gain_N - spec.kl_coef * ratio_N * kl_N
    if spec.log_ratio_penalty != 0.0:
        gain_N = gain_N - spec.log_ratio_penalty * (logprobs_N - old_N).square()
    return -(targets.weights_N * gain_N).sum()


def count_clipped(logprobs_N: Tensor, targets: PolicyTargets, spec: ObjectiveSpec) -> int:
    """Tokens whose policy gradient the clip or the mask has cut: off, or to the bound."""
    known_N = ~torch.isnan(targets.old_logprobs_N)
    old_N = torch.where(known_N, targets.old_logprobs_N, logprobs_N)
    adv_N, ratio_N = targets.advantages_N, torch.exp(logprobs_N - old_N)
    low, high = 1.0 - spec.clip_low, 1.0 + spec.clip_high
    match spec.policy_loss:
        case PolicyLoss.PPO_CLIP:
            cut_N = torch.where(adv_N > 0, ratio_N > high, ratio_N < low)
        case PolicyLoss.CISPO:
            cut_N = (ratio_N > high) | (ratio_N < low)
        case PolicyLoss.TRUNCATED_IMPORTANCE:
            cut_N = ratio_N > spec.importance_cap
        case PolicyLoss.DPPO:
            cut_N = _dppo_mask(logprobs_N, old_N, adv_N, spec)
        case PolicyLoss.REINFORCE | PolicyLoss.IMPORTANCE:
            return 0
    return int((cut_N & (adv_N != 0)).sum())


def _dppo_mask(logprobs_N: Tensor, old_N: Tensor, adv_N: Tensor, spec: ObjectiveSpec) -> Tensor:
    moved_N = (logprobs_N.exp() - old_N.exp()).detach()
    return torch.where(adv_N > 0, moved_N > spec.dppo_high, moved_N < -spec.dppo_low)


def env_loss(logprobs_N: Tensor, weights_N: Tensor) -> Tensor:
    """Weighted cross-entropy of the environment's answers, lambda included."""
    return -(weights_N * logprobs_N).sum()


def from_logprobs(
    logprobs_R: Sequence[Tensor], streams: Sequence[RowStream], spec: ObjectiveSpec
) -> LossParts:
    """Loss of some rows from the log-probs of all their targets, one 1-D tensor per row."""
    rl_N = _gather(logprobs_R, [stream.rl_targets for stream in streams])
    env_N = None
    if spec.lambda_env != 0.0:
        env_N = _gather(logprobs_R, [stream.env_targets for stream in streams])
    return _sum_parts(rl_N, env_N, streams, spec)


def from_logits(
    logits_R_TV: Sequence[Tensor],
    ids_R: Sequence[Sequence[int]],
    streams: Sequence[RowStream],
    spec: ObjectiveSpec,
) -> LossParts:
    """Loss of some rows from logits; row t of a row's logits predicts its token t + 1.

    Action targets are read at the policy's temperature, environment targets at theirs. Logits that
    predict nothing selected are not touched.
    """
    rl_N = _selected(logits_R_TV, ids_R, [s.rl_targets for s in streams], spec.policy_temperature)
    env_N = None
    if spec.lambda_env != 0.0:
        env_N = _selected(
            logits_R_TV, ids_R, [s.env_targets for s in streams], spec.env_temperature
        )
    return _sum_parts(rl_N, env_N, streams, spec)


def _sum_parts(
    rl_N: Tensor, env_N: Tensor | None, streams: Sequence[RowStream], spec: ObjectiveSpec
) -> LossParts:
    policy = policy_loss(rl_N, policy_targets(streams, dtype=rl_N.dtype, device=rl_N.device), spec)
    if env_N is None:
        return LossParts(loss=policy, policy=policy.detach(), env=None)
    weighted = env_loss(env_N, env_weights(streams, dtype=env_N.dtype, device=env_N.device))
    return LossParts(
        loss=policy + weighted,
        policy=policy.detach(),
        env=weighted.detach() / spec.lambda_env,
    )


def _gather(logprobs_R: Sequence[Tensor], targets_R: Sequence[Sequence[int]]) -> Tensor:
    # Indexing rather than masking: a selected-by-zero infinity would become nan. An empty selection
    # still belongs to the graph, so that every rank can run its backward pass.
    parts = [
        logprobs_T[torch.tensor(targets, dtype=torch.long)]
        for logprobs_T, targets in zip(logprobs_R, targets_R, strict=True)
    ]
    return torch.cat(parts) if parts else torch.zeros(0, requires_grad=True)


def _selected(
    logits_R_TV: Sequence[Tensor],
    ids_R: Sequence[Sequence[int]],
    targets_R: Sequence[Sequence[int]],
    temperature: float,
) -> Tensor:
    parts = []
    for logits_TV, ids, targets in zip(logits_R_TV, ids_R, targets_R, strict=True):
        rows = torch.tensor(targets, dtype=torch.long)
        wanted = torch.tensor([ids[t + 1] for t in targets], dtype=torch.long)
        parts.append(token_logprobs(logits_TV[rows], wanted, temperature))
    return torch.cat(parts) if parts else torch.zeros(0, requires_grad=True)
