"""Limits of an episode, and how its rewards become a score."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

MIB = 2**20


@dataclass(frozen=True)
class EpisodeSettings:
    """Limits of an episode and how its rewards become a score."""

    connect_timeout_s: float = 10.0
    reset_timeout_s: float = 60.0
    """Apart from a step's: first resets of real environments take 15 s and more."""
    step_timeout_s: float = 60.0
    slot_wait_s: float = 60.0
    """How long to wait for a free slot of the server."""
    max_steps: int = 20
    max_action_bytes: int = 8 * MIB
    max_observation_bytes: int = 64 * MIB
    max_text_chars: int = 65536
    """Texts of observations are shortened to this before anyone gets them."""
    max_rejected_actions: int = 3
    reward_aggregate: Literal["last", "sum"] = "last"
    """`last`: the reward of the step that ended the episode; `sum`: of all steps, that one too."""
    reward_range: tuple[float, float] | None = None
    """What the environment declares; anything outside is no score."""
    truncation_reward: float | None = None
    """The score of an episode that does not end in time, where a person has decided on one."""
    episode_timeout_s: float = 900.0
    """Of the whole episode, the agent's thinking included; nothing may hold a run for ever."""
    verifier_files: tuple[str, ...] = ()
    """Files of a server on this machine that decide the reward, by their full paths; if one
    changes during the episode, its reward is not used.
    """
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """`ValueError` that names the field; JSON that people wrote comes by here."""
        for name in ("connect_timeout_s", "reset_timeout_s", "step_timeout_s", "episode_timeout_s"):
            if not (_is_number(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"{name} must be a positive number of seconds")
        if not _is_number(self.slot_wait_s) or self.slot_wait_s < 0:
            raise ValueError("slot_wait_s must be a number of seconds, 0 or more")
        for name in (
            *("max_steps", "max_rejected_actions", "max_text_chars"),
            *("max_action_bytes", "max_observation_bytes"),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number, at least 1")
        if self.reward_aggregate not in ("last", "sum"):
            raise ValueError("reward_aggregate is last or sum")
        if self.reward_range is not None:
            _check_range(self.reward_range)
        if self.truncation_reward is not None and not _is_number(self.truncation_reward):
            raise ValueError("truncation_reward must be a number")
        files: object = self.verifier_files
        if not isinstance(files, tuple | list):
            raise ValueError("verifier_files must be a list of paths")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _check_range(bounds: object) -> None:
    if not isinstance(bounds, tuple | list) or len(bounds) != 2 or not all(map(_is_number, bounds)):
        raise ValueError("reward_range needs a least and a greatest reward: [0, 1]")
    if bounds[0] > bounds[1]:
        raise ValueError("reward_range: the least reward is above the greatest")
