"""Limits of an episode, as people write them into files and forms."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.environments.authoring.task_checks import check_limits
from orchestrator.environments.limits import EpisodeSettings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slot_wait_s", "long"),
        ("slot_wait_s", -1),
        ("step_timeout_s", "60"),
        ("step_timeout_s", float("nan")),
        ("max_steps", 2.5),
        ("max_steps", True),
        ("max_text_chars", "all"),
        ("max_observation_bytes", 0),
        ("reward_range", [1]),
        ("reward_range", [1, 0]),
        ("reward_range", ["0", "1"]),
        ("truncation_reward", "0"),
        ("truncation_reward", float("inf")),
        ("verifier_files", "/verify.sh"),
    ],
)
def test_what_no_episode_could_keep_is_refused_by_its_name(name: str, value: Any) -> None:
    for check in (check_limits, lambda limits: EpisodeSettings(**limits)):
        with pytest.raises(ValueError, match=name):
            check({name: value})


def test_what_fits_is_kept_as_it_is() -> None:
    limits = {"max_steps": 3, "step_timeout_s": 0.5, "slot_wait_s": 0, "reward_range": [-1, 1.5]}
    assert check_limits(limits) == limits
    assert EpisodeSettings(**limits).max_steps == 3  # type: ignore[arg-type] # as JSON gives it
