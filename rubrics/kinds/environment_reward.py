"""The environment's own reward as a verdict.

No reward, NaN and values outside the range are errors, never numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rubrics.errors import CriterionFailed
from rubrics.kinds.base import Kind, Param, ParamType
from rubrics.types import Criterion, Scope, Transcript, Verdict


def decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    reward = transcript.reward
    if reward is None:
        raise CriterionFailed("the environment gave no reward")
    if not math.isfinite(reward):
        raise CriterionFailed(f"the environment's reward is {reward}, which is not a finite number")
    low, high = float(KIND.param(criterion, "low")), float(KIND.param(criterion, "high"))
    if not low <= reward <= high:
        # Clamping would hide a wrong range for a whole run.
        raise CriterionFailed(f"the environment's reward {reward:g} is outside {low:g} to {high:g}")
    cites = tuple(step.seq for step in transcript.steps[-1:])
    return Verdict.scored(
        criterion, (reward - low) / (high - low), f"the environment gave {reward:g}", cites
    )


def check(params: Mapping[str, Any]) -> list[str]:
    if params.get("low", 0.0) >= params.get("high", 1.0):
        return ["params.high: must be above params.low"]
    return []


KIND = Kind(
    name="environment_reward",
    about="What the environment itself says of the rollout",
    decide=decide,
    params=(
        Param("low", ParamType.NUMBER, "the reward that counts as 0", default=0.0),
        Param("high", ParamType.NUMBER, "the reward that counts as 1", default=1.0),
    ),
    scopes=(Scope.FINAL_ANSWER, Scope.TRAJECTORY, Scope.ENVIRONMENT_STATE),
    check=check,
)
