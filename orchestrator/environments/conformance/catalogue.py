"""Each check in one place: what is asked, why it matters, what to do. Pure.

The order is that of the report; the first decides whether the others can be asked at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """What a failure concerns."""

    BLOCKING = "everything"
    """No episode works."""
    SCORES = "scores"
    """Scores may be wrong, or earned without the task."""
    REPEAT = "repeatability"
    """Scores cannot be repeated or compared."""
    OPERATION = "operation"
    """Runs are slower or fail more often than they need to."""


@dataclass(frozen=True)
class Check:
    id: str
    title: str
    severity: Severity
    meaning: str
    remediation: str


_CHECKS = (
    Check(
        "startup",
        "Episodes start",
        Severity.BLOCKING,
        "A connection opens and a reset answers. /health proves neither.",
        "Read the server's own message; start it by hand and reset an episode.",
    ),
    Check(
        "reset_time",
        "Resets are quick",
        Severity.OPERATION,
        "Each rollout begins with a reset; what it loads or installs is paid every time.",
        "Load data and models when the server starts, and install nothing in reset.",
    ),
    Check(
        "action_schema",
        "Actions are described",
        Severity.OPERATION,
        "With a schema an action that does not fit is refused before it is sent and the agent may "
        "try again; without one it looks like a fault of the environment.",
        "Serve a JSON schema of the action at /schema; openenv's create_app does so.",
    ),
    Check(
        "state_contract",
        "The state can be read",
        Severity.OPERATION,
        "People look at the state to see where an episode stands. It never reaches an agent.",
        "Return a State with episode_id and step_count, and only values that JSON can hold.",
    ),
    Check(
        "error_answers",
        "Bad requests get clean answers",
        Severity.OPERATION,
        "An unknown action must give an error and leave the episode as it is, without a traceback.",
        "Forbid unknown fields in the action model, and raise errors with a short message.",
    ),
    Check(
        "seed_control",
        "Reset honours the seed",
        Severity.REPEAT,
        "The same seed must give the same start, or two rollouts with one seed face two tasks.",
        "Derive all randomness of an episode from the seed that reset receives.",
    ),
    Check(
        "episode_determinism",
        "Episodes are deterministic",
        Severity.REPEAT,
        "The same actions after the same reset must bring the same observations and rewards.",
        "Take times, ids and unseeded random numbers out of observations and rewards.",
    ),
    Check(
        "episode_isolation",
        "Episodes do not see each other",
        Severity.SCORES,
        "Two episodes at a time must behave as if each were alone.",
        "Keep state on the environment object and in a folder of its own, not in globals or a "
        "shared folder; or set slots to 1.",
    ),
    Check(
        "concurrent_sessions",
        "Episodes run at the same time",
        Severity.OPERATION,
        "The true number of slots, and how the server refuses one more.",
        "Set slots to what the server takes, or raise its max_concurrent_envs.",
    ),
    Check(
        "slot_release",
        "Abandoned slots come back",
        Severity.OPERATION,
        "A client that disappears must not keep its slot, or the server fills up within a day.",
        "End the session when its socket closes; a step that hangs must end by itself.",
    ),
    Check(
        "reward_well_formed",
        "Rewards are finite and in range",
        Severity.SCORES,
        "The step that ends an episode must carry a finite number in the declared range.",
        "Return a number on every ending step, and declare reward_range in the version's limits.",
    ),
    Check(
        "reset_reward",
        "The reset pays nothing",
        Severity.SCORES,
        "Nothing was judged at a reset. A number there is ignored here, but not everywhere.",
        "Return no reward from reset.",
    ),
    Check(
        "no_solution_leakage",
        "The answer is not given away",
        Severity.SCORES,
        "Neither the first observation, nor metadata or state, may hold what solves the task.",
        "Keep answers on the server alone. Agents here get neither metadata nor state; other "
        "programs and people do.",
    ),
    Check(
        "canary_floor",
        "Doing nothing pays nothing",
        Severity.SCORES,
        "Agents that do not try (no-op, empty, garbage, echo, a claimed reward) must earn nothing.",
        "Pay for the result alone, and only at the end.",
    ),
    Check(
        "oracle_max",
        "The reference earns full reward",
        Severity.SCORES,
        "An author's transcript that earns less shows that task or verifier is wrong.",
        "Play the transcript in Try out and see which step differs.",
    ),
    Check(
        "oracle_containment",
        "The verifier is out of reach",
        Severity.SCORES,
        "An agent that writes files must not be able to read or write what decides its reward.",
        "Grade in a process and a folder that the agent's commands cannot see.",
    ),
)

CATALOGUE: dict[str, Check] = {check.id: check for check in _CHECKS}
