"""What the experiment in the world of four files must show. Pure.

The checkpoint is chosen on the validation part and judged on the final part, as a result that was
chosen on what it is judged by would be too good. Bars are wide of what was measured on seeds 0 to
3 (`docs/reproduction.md`): a figure depends on the seed and on the version of torch, the order does
not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FALLS_TO = 0.8
"""Share of the first surprise below which the environment counts as learned."""
STAYS_ABOVE = 0.9
REWARD_GAIN = 0.2
"""By which the last quarter of steps must beat the first tenth, so that GRPO is seen at work."""

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """Of one training."""

    start: float
    """Nats per character on the final part, before the first step."""
    chosen_step: int
    """The best on the validation part, after the first step."""
    chosen: float
    """On the final part, at the chosen step."""
    last: float
    """On the final part, after the last step."""
    first_reward: float
    last_reward: float
    zero_advantage_share: float
    """Of groups, over all steps."""
    observation_share: float
    """Of the tokens that ECHO trains on."""

    @property
    def share(self) -> float:
        """What is left of the first surprise."""
        return self.chosen / self.start


@dataclass(frozen=True)
class Claim:
    """A sentence, and whether the figures bear it out."""

    sentence: str
    holds: bool


def outcome(lines: Sequence[Line]) -> Outcome:
    """From the lines of `experiment`. ValueError if there is no evaluation after a step."""
    steps = [line for line in lines if line["kind"] == "step"]
    measured = [line for line in lines if line["kind"] == "evaluation"]
    later = [line for line in measured if line["step"] > 0]
    if not later:
        raise ValueError("no evaluation after a step")
    # The earlier of equals.
    chosen = min(later, key=lambda line: (line["validation"], line["step"]))
    rewards = [float(line["reward"]) for line in steps]
    said = sum(line["n_env"] for line in steps)
    acted = sum(line["n_action"] for line in steps)
    return Outcome(
        start=measured[0]["final"],
        chosen_step=chosen["step"],
        chosen=chosen["final"],
        last=later[-1]["final"],
        first_reward=_mean(rewards[: max(1, len(rewards) // 10)]),
        last_reward=_mean(rewards[-max(1, len(rewards) // 4) :]),
        zero_advantage_share=_mean([line["zero_advantage_share"] for line in steps]),
        observation_share=said / (said + acted),
    )


def claims(grpo: Outcome, echo: Outcome) -> list[Claim]:
    """All that is asserted, in order."""
    return [
        Claim(
            f"With ECHO the surprise at held-out outputs falls, from {echo.start:.2f} to "
            f"{echo.chosen:.2f} nats a character (bar: {FALLS_TO:.0%} of the start).",
            echo.share <= FALLS_TO,
        ),
        Claim(
            f"With GRPO it does not: from {grpo.start:.2f} to {grpo.chosen:.2f} "
            f"(bar: above {STAYS_ABOVE:.0%}).",
            grpo.share >= STAYS_ABOVE,
        ),
        Claim(
            f"GRPO was at work: its reward rises from {grpo.first_reward:.2f} to "
            f"{grpo.last_reward:.2f} (bar: by {REWARD_GAIN}).",
            grpo.last_reward - grpo.first_reward >= REWARD_GAIN,
        ),
        Claim(
            f"ECHO learns to act as well: its reward rises from {echo.first_reward:.2f} to "
            f"{echo.last_reward:.2f} (bar: by {REWARD_GAIN}).",
            echo.last_reward - echo.first_reward >= REWARD_GAIN,
        ),
    ]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
