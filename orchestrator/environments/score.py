"""From the rewards of an episode's steps to its score, or to the reason why there is none.

A missing reward is not 0, an episode that was cut off has no last reward, and nothing is clamped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.environments.errors import Cause, EpisodeError
from orchestrator.environments.session import EpisodeSettings


@dataclass(frozen=True)
class Score:
    """A verdict that the settings accept."""

    value: float
    is_truncated: bool
    """The episode did not end by itself; keep these apart in every mean."""
    note: str = ""
    """Names the setting that gave the score, where it was not the environment."""


def score_of(
    rewards: Sequence[float | None],
    *,
    done: bool,
    settings: EpisodeSettings,
    has_stopped: bool = False,
) -> Score:
    """The score of an episode with these step rewards (the reset's is not among them).

    `done`: the last step ended it; else it was cut off, by the step limit or because the policy
    stopped (`has_stopped`). `EpisodeError` where there is no score.
    """
    n = len(rewards)
    numbers = [r for r in rewards if r is not None]
    if done:
        last = rewards[-1]
        if last is None:
            raise EpisodeError(
                Cause.REWARD_MISSING, f"The episode ended at step {n} without a reward. No score."
            )
        value = last if settings.reward_aggregate == "last" else math.fsum(numbers)
        return Score(_in_range(value, n, settings), is_truncated=False)
    if settings.truncation_reward is not None:
        return Score(
            settings.truncation_reward,
            is_truncated=True,
            note=f"truncation_reward = {settings.truncation_reward:g}",
        )
    steps = f"{n} step" if n == 1 else f"{n} steps"
    if not numbers and n > 0:
        raise EpisodeError(
            Cause.REWARD_MISSING, f"The environment gave no reward in {steps}. No score."
        )
    if settings.reward_aggregate == "sum" and numbers:
        return Score(_in_range(math.fsum(numbers), n, settings), is_truncated=True)
    if has_stopped:
        text = f"The agent stopped after {steps}; the episode had not ended"
    else:
        text = f"The episode did not end within {steps}"
    raise EpisodeError(Cause.STEP_LIMIT, f"{text}. No score.")


def _in_range(value: float, n: int, settings: EpisodeSettings) -> float:
    if settings.reward_range is None:
        return value
    low, high = settings.reward_range
    if low <= value <= high:
        return value
    is_sum = settings.reward_aggregate == "sum"
    what = f"The sum of the rewards of {n} steps" if is_sum else f"The reward of step {n}"
    raise EpisodeError(
        Cause.REWARD_INVALID,
        f"{what} is {value:g}; the environment declares {low:g} to {high:g}. No score.",
        claimed_reward=value,
    )
