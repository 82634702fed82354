"""Is the training collapsing? Looks at the steps so far and says so before the reward does.

The first steps are held against the newest. What a working training does as well (observations that
become alike because all siblings solve the task) is no alarm: most need a reward that has not
risen. Pure; the thresholds are of the first kind that separates the runs which are known to have
collapsed (ECHO at lambda 0.2 and above) from those that have not, and err towards a warning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

WINDOW = 3
"""Steps on each side; a single step of a few groups says little."""


class Level(StrEnum):
    """What follows from an alarm."""

    WARN = "warn"
    """It is shown."""
    PAUSE = "pause"
    """The training waits until a person lets it go on."""


class Signal(StrEnum):
    """What is watched."""

    SURPRISE = "surprise"
    """Environment CE falls while observations become alike and the reward does not rise."""
    ROLES = "roles"
    """The model writes role markers: it goes on with the transcript instead of acting."""
    ENTROPY = "entropy"
    """The policy has become certain."""
    REPETITION = "repetition"
    """Answers repeat themselves."""
    LENGTH = "length"
    """Answers grow while the reward does not rise."""
    NOT_FINITE = "not_finite"
    """A gradient was not finite and its step was skipped."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When to warn, when to pause."""

    surprise_fall: float = 0.3
    """Share by which environment CE and the share of distinct observations must both have fallen.
    """
    roles_warn: float = 0.05
    """Share of rollouts with a role marker in an action."""
    roles_pause: float = 0.25
    entropy_warn: float = 0.1
    """Nats; only after it was above."""
    entropy_pause: float = 0.02
    entropy_fall: float = 0.5
    repetition_warn: float = 0.3
    """Share of repeated pieces of four tokens, where it was at most half of that before."""
    repetition_pause: float = 0.6
    length_warn: float = 2.0
    """Times the length of the first steps."""
    length_pause: float = 4.0
    reward_rise: float = 0.02
    """A smaller rise is none."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One finding."""

    signal: Signal
    level: Level
    step: int
    before: float | None
    now: float
    sentence: str


def look(steps: Sequence[Mapping[str, Any]], limits: Thresholds | None = None) -> list[Alarm]:
    """Alarms at the newest of these metrics, oldest first. Nothing before 2 x WINDOW steps,
    apart from a step that was skipped.
    """
    if not steps:
        return []
    limits = limits or Thresholds()
    step = int(steps[-1].get("step", len(steps)))
    found: list[Alarm] = []
    if steps[-1].get("is_skipped"):
        sentence = "The gradient was not finite; the step was skipped and the weights kept."
        found.append(Alarm(Signal.NOT_FINITE, Level.WARN, step, None, 1.0, sentence))
    if len(steps) < 2 * WINDOW:
        return found
    sides = _Sides(steps[:WINDOW], steps[-WINDOW:])
    rose = sides.rise("reward_mean")
    is_better = rose is not None and rose > limits.reward_rise
    for each in (_surprise, _roles, _entropy, _repetition, _length):
        if (alarm := each(sides, limits, is_better, step)) is not None:
            found.append(alarm)
    return found


@dataclass(frozen=True, slots=True)
class _Sides:
    first: Sequence[Mapping[str, Any]]
    last: Sequence[Mapping[str, Any]]

    def of(self, *names: str) -> tuple[float, float] | None:
        """Mean before and now of the first of these metrics that both sides have."""
        for name in names:
            before, now = _mean(self.first, name), _mean(self.last, name)
            if before is not None and now is not None:
                return before, now
        return None

    def rise(self, name: str) -> float | None:
        pair = self.of(name)
        return None if pair is None else pair[1] - pair[0]


def _mean(steps: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [
        float(value)
        for each in steps
        if isinstance(value := each.get(name), int | float) and math.isfinite(value)
    ]
    return math.fsum(values) / len(values) if values else None


def _surprise(sides: _Sides, limits: Thresholds, is_better: bool, step: int) -> Alarm | None:
    surprise = sides.of("world_ce_selected_per_token")
    kinds = sides.of("observation_distinct_share")
    if surprise is None or kinds is None or is_better:
        return None
    left = 1.0 - limits.surprise_fall
    if surprise[1] > left * surprise[0] or kinds[1] > left * kinds[0]:
        return None
    return Alarm(
        Signal.SURPRISE,
        Level.PAUSE,
        step,
        *surprise,
        f"The environment became easy to predict ({surprise[0]:.2f} to {surprise[1]:.2f} nats) "
        f"while observations became alike ({kinds[0]:.0%} to {kinds[1]:.0%} distinct) and the "
        "reward did not rise: the policy may seek what is easy to predict.",
    )


def _roles(sides: _Sides, limits: Thresholds, is_better: bool, step: int) -> Alarm | None:
    del is_better  # a model that speaks for the environment is wrong at any reward
    pair = sides.of("role_marker_share")
    if pair is None or pair[1] < limits.roles_warn or pair[1] <= pair[0]:
        return None
    level = Level.PAUSE if pair[1] >= limits.roles_pause else Level.WARN
    sentence = (
        f"{pair[1]:.0%} of rollouts write role markers, {pair[0]:.0%} at first: the model goes on "
        "with the transcript instead of acting."
    )
    return Alarm(Signal.ROLES, level, step, *pair, sentence)


def _entropy(sides: _Sides, limits: Thresholds, is_better: bool, step: int) -> Alarm | None:
    pair = sides.of("entropy_mean", "entropy_sampled")
    if pair is None or is_better or pair[0] < limits.entropy_warn:
        return None
    is_low = pair[1] < limits.entropy_warn
    if not is_low and pair[1] > (1.0 - limits.entropy_fall) * pair[0]:
        return None
    level = Level.PAUSE if pair[1] < limits.entropy_pause else Level.WARN
    sentence = (
        f"Entropy fell from {pair[0]:.2f} to {pair[1]:.2f} nats per token and the reward did not "
        "rise: siblings become copies, and groups without spread teach nothing."
    )
    return Alarm(Signal.ENTROPY, level, step, *pair, sentence)


def _repetition(sides: _Sides, limits: Thresholds, is_better: bool, step: int) -> Alarm | None:
    del is_better
    pair = sides.of("action_repeated_share")
    if pair is None or pair[1] < limits.repetition_warn or pair[0] > 0.5 * pair[1]:
        return None
    level = Level.PAUSE if pair[1] >= limits.repetition_pause else Level.WARN
    sentence = f"Answers repeat themselves: {pair[1]:.0%} of their pieces, {pair[0]:.0%} at first."
    return Alarm(Signal.REPETITION, level, step, *pair, sentence)


def _length(sides: _Sides, limits: Thresholds, is_better: bool, step: int) -> Alarm | None:
    pair = sides.of("action_tokens_mean")
    if pair is None or is_better or pair[0] <= 0 or pair[1] < limits.length_warn * pair[0]:
        return None
    level = Level.PAUSE if pair[1] >= limits.length_pause * pair[0] else Level.WARN
    sentence = (
        f"Rollouts write {pair[1]:.0f} tokens, {pair[0]:.0f} at first, and the reward did not rise."
    )
    return Alarm(Signal.LENGTH, level, step, *pair, sentence)
