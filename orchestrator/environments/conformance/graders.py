"""The graders by the id of their check, in the catalogue's order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from orchestrator.environments.conformance import (
    capacity,
    containment,
    leaks,
    repeating,
    rewards,
    starting,
)
from orchestrator.environments.conformance.finding import Finding
from orchestrator.environments.conformance.subject import Subject

Grader = Callable[[Subject], Awaitable[Finding]]

GRADERS: dict[str, Grader] = {
    "startup": starting.startup,
    "reset_time": starting.reset_time,
    "action_schema": starting.action_schema,
    "state_contract": starting.state_contract,
    "error_answers": starting.error_answers,
    "seed_control": repeating.seed_control,
    "episode_determinism": repeating.episode_determinism,
    "episode_isolation": repeating.episode_isolation,
    "concurrent_sessions": capacity.concurrent_sessions,
    "slot_release": capacity.slot_release,
    "reward_well_formed": rewards.reward_well_formed,
    "reset_reward": rewards.reset_reward,
    "no_solution_leakage": leaks.no_solution_leakage,
    "canary_floor": rewards.canary_floor,
    "oracle_max": rewards.oracle_max,
    "oracle_containment": containment.oracle_containment,
}
