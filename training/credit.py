"""Advantages: what a rollout's reward is worth beside the other attempts at the same task.

Pure arithmetic in float64. A group without spread gives exactly 0 in every mode but `none` and
`success`: a rounding residue over a tiny standard deviation would otherwise become a gradient
(trl#3857). Rollouts without a score get None and never enter their group's statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from training.types import AdvantageMode, AdvantageSpec, GroupOfOne


def group_advantages(
    *, groups: Sequence[str], rewards: Sequence[float | None], spec: AdvantageSpec
) -> list[float | None]:
    """One advantage per rollout, None where the rollout has no finite reward.

    Source of `std`: GRPO, arXiv 2402.03300, section 4.1.2, with the unbiased deviation of the ECHO
    reference trainer. `leave_one_out` is the centred advantage times n / (n - 1).
    """
    members: dict[str, list[int]] = {}
    for index, (group, reward) in enumerate(zip(groups, rewards, strict=True)):
        if reward is not None and math.isfinite(reward):
            members.setdefault(group, []).append(index)
    advantages: list[float | None] = [None] * len(rewards)
    for indices in members.values():
        scores = [float(r) for i in indices if (r := rewards[i]) is not None]
        for index, value in zip(indices, _of_group(scores, spec), strict=True):
            advantages[index] = value
    return advantages


def has_spread(scores: Sequence[float]) -> bool:
    """Whether a group can teach the policy anything."""
    return len(scores) > 1 and min(scores) != max(scores)


def _of_group(scores: list[float], spec: AdvantageSpec) -> list[float]:
    n = len(scores)
    if spec.mode is AdvantageMode.NONE:
        return scores
    if spec.mode is AdvantageMode.SUCCESS:
        return [1.0 if score >= spec.success_reward else 0.0 for score in scores]
    if n == 1:
        if spec.group_of_one is GroupOfOne.ZERO:
            return [0.0]
        is_scaled = spec.mode in (AdvantageMode.STD, AdvantageMode.STD_POPULATION)
        return [scores[0] / (1.0 + spec.eps) if is_scaled else scores[0]]
    if not has_spread(scores):
        return [0.0] * n
    mean = math.fsum(scores) / n
    centred = [score - mean for score in scores]
    match spec.mode:
        case AdvantageMode.CENTRE:
            scale = 1.0
        case AdvantageMode.LEAVE_ONE_OUT:
            scale = n / (n - 1)
        case AdvantageMode.STD:
            scale = 1.0 / (math.sqrt(math.fsum(c * c for c in centred) / (n - 1)) + spec.eps)
        case AdvantageMode.STD_POPULATION:
            scale = 1.0 / (math.sqrt(math.fsum(c * c for c in centred) / n) + spec.eps)
    return [c * scale for c in centred]
