"""What can go wrong with environments: one tree.

An episode that fails ends with one cause of a fixed list and a sentence for people that names the
step and the limit. The caller stores both; it never turns them into a number.
"""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """Why an episode has no verdict."""

    ENV_UNREACHABLE = "env_unreachable"
    """No connection could be opened."""
    NO_CAPACITY = "no_capacity"
    """No slot within the allowed wait."""
    ENV_FACTORY_FAILED = "env_factory_failed"
    """The server cannot create the environment."""
    RESET_FAILED = "reset_failed"
    """Reset raised."""
    RESET_TIMEOUT = "reset_timeout"
    """Reset passed its limit."""
    DONE_ON_RESET = "done_on_reset"
    """The episode was over at its start."""
    STEP_TIMEOUT = "step_timeout"
    """A step passed its limit."""
    SERVER_LOST = "server_lost"
    """The connection closed while a request was in flight."""
    SESSION_LOST = "session_lost"
    """The connection closed between requests."""
    ACTION_REJECTED = "action_rejected"
    """Too many actions in a row that do not fit the schema."""
    ACTION_TOO_LARGE = "action_too_large"
    """The encoded action is above the limit."""
    OBSERVATION_TOO_LARGE = "observation_too_large"
    """The observation is above the limit."""
    ENV_EXCEPTION = "env_exception"
    """The environment reported an error in a step."""
    PROTOCOL_VIOLATION = "protocol_violation"
    """An answer that is not an OpenEnv answer."""
    REWARD_MISSING = "reward_missing"
    """No number where the score needs one; NaN and infinite rewards arrive this way."""
    REWARD_INVALID = "reward_invalid"
    """Not finite, not a number, or outside the declared range."""
    STEP_LIMIT = "step_limit"
    """The episode did not end within its steps and no rule gives it a score."""
    VERIFIER_TAMPERED = "verifier_tampered"
    """A file that decides the reward changed."""
    WORKER_LOST = "worker_lost"
    """The driving process disappeared."""
    CANCELLED = "cancelled"
    """Ended by a person or a shutdown."""


class EnvironmentsError(Exception):
    """Base of this app's errors."""


class SandboxError(EnvironmentsError, RuntimeError):
    """The sandbox itself failed; says nothing about the command."""


class SandboxUnavailableError(SandboxError):
    """No isolation on this machine and no opt-out. The message tells what to do."""


class ServerStartError(EnvironmentsError, RuntimeError):
    """An environment server did not become ready. The message ends with what it printed."""


class EnvironmentProbeError(EnvironmentsError, ValueError):
    """A server cannot be connected. The message is for the form's field."""


class SourceError(EnvironmentsError, ValueError):
    """A source cannot become an environment. The message names the field or step, and the fix."""


class EpisodeError(EnvironmentsError, RuntimeError):
    """The episode is over without a verdict; its connection must not be used again."""

    def __init__(
        self,
        cause: Cause,
        message: str = "",
        *,
        raw: str = "",
        claimed_reward: float | None = None,
    ) -> None:
        super().__init__(message or cause.value)
        self.cause = cause
        self.message = message or cause.value
        self.raw = raw
        """What the server sent, shortened; foreign text, to be escaped."""
        self.claimed_reward = claimed_reward
        """The number that is not used, where there was one."""

    def __reduce__(self) -> tuple[object, ...]:
        return _episode_error, (self.cause, self.message, self.raw, self.claimed_reward)


def _episode_error(
    cause: Cause, message: str, raw: str, claimed_reward: float | None
) -> EpisodeError:
    return EpisodeError(cause, message, raw=raw, claimed_reward=claimed_reward)


class ActionRejectedError(EnvironmentsError, ValueError):
    """The action does not fit the environment's schema; nothing was sent, try another."""
