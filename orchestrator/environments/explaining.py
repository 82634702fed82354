"""Sentences for people about episodes that failed: they name the step and the limit. Pure."""

from __future__ import annotations

from orchestrator.environments.connection import Refused
from orchestrator.environments.errors import Cause, EpisodeError
from orchestrator.environments.limits import MIB, EpisodeSettings


def unstarted(exc: EpisodeError, settings: EpisodeSettings) -> EpisodeError:
    texts = {
        Cause.RESET_TIMEOUT: "The environment did not start the episode within "
        f"{settings.reset_timeout_s:g} s.",
        Cause.OBSERVATION_TOO_LARGE: "The first observation is larger than "
        f"{mib(settings.max_observation_bytes)}.",
        Cause.PROTOCOL_VIOLATION: "The environment's answer to reset is not an OpenEnv answer.",
        Cause.REWARD_INVALID: "The environment's answer to reset is not an OpenEnv answer.",
    }
    lost = "The environment server closed the connection while the episode was starting."
    text = texts.get(exc.cause, lost)
    # The reward of a reset is never a score; an odd one only shows a broken server.
    is_odd_reward = exc.cause is Cause.REWARD_INVALID
    cause = Cause.PROTOCOL_VIOLATION if is_odd_reward else exc.cause
    if cause is Cause.SESSION_LOST:
        cause = Cause.SERVER_LOST
    return EpisodeError(cause, f"{text} No score.", raw=exc.raw)


def refused_reset(exc: Refused) -> EpisodeError:
    if exc.code == "FACTORY_ERROR":
        text = "The environment could not be created on its server"
        cause = Cause.ENV_FACTORY_FAILED
    else:
        text, cause = "The environment refused to start the episode", Cause.RESET_FAILED
    detail = f": {exc.text}" if exc.text else ""
    return EpisodeError(cause, f"{text}{detail}. No score.", raw=exc.raw)


def refused_step(exc: Refused, number: int, *, has_schema: bool) -> EpisodeError:
    if exc.code == "VALIDATION_ERROR" and has_schema:
        text = f"The environment failed at step {number} although the action fits its schema"
    elif exc.text:
        text = f"The environment failed at step {number}: {exc.text}"
    else:
        text = f"The environment reported an error at step {number} without saying which"
    return EpisodeError(Cause.ENV_EXCEPTION, f"{text}. No score.", raw=exc.raw)


def explained(exc: EpisodeError, number: int, settings: EpisodeSettings) -> EpisodeError:
    """The connection's cause with a sentence that names the step and the limit."""
    before = f"after step {number - 1}" if number > 1 else "before step 1"
    texts = {
        Cause.STEP_TIMEOUT: f"Step {number} did not answer within {settings.step_timeout_s:g} s.",
        Cause.SERVER_LOST: "The environment server closed the connection while step "
        f"{number} was running.",
        Cause.SESSION_LOST: f"The connection to the environment was lost {before}; the "
        "episode cannot be continued.",
        Cause.OBSERVATION_TOO_LARGE: f"The observation of step {number} is larger than "
        f"{mib(settings.max_observation_bytes)}.",
        Cause.PROTOCOL_VIOLATION: f"The environment's answer to step {number} is not an "
        "OpenEnv answer.",
        Cause.REWARD_INVALID: f"The reward of step {number} is not a finite number.",
    }
    if exc.cause not in texts:
        return exc
    return EpisodeError(exc.cause, f"{texts[exc.cause]} No score.", raw=exc.raw)


def mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.1f} MiB" if size_bytes >= MIB else f"{size_bytes} bytes"


def in_use(active: int | None, maximum: int | None) -> str:
    if active is None or maximum is None:
        return ""
    return f" ({active} of {maximum} in use)"
