"""How many episodes at a time, how one more is refused, and whether abandoned slots come back."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

from orchestrator.environments.conformance.finding import (
    Finding,
    failed,
    passed,
    quoted,
    skipped,
    untold,
    warned,
)
from orchestrator.environments.conformance.subject import SEED, Subject
from orchestrator.environments.connection import EpisodeConnection, Refused
from orchestrator.environments.errors import Cause, EpisodeError

MOST_SESSIONS = 64
"""Opened at once, at most, on a server of our own."""
MOST_SHARED = 8
"""The same on somebody else's server, which others may be using."""
RELEASE_LIMIT_S = 15.0
_PAUSE_S = 0.1


async def concurrent_sessions(subject: Subject) -> Finding:
    """Opens sessions one by one up to the declared number, and one more."""
    declared = subject.capacity
    most = MOST_SHARED if subject.is_shared else MOST_SESSIONS
    wanted = min(declared or most, most)
    refusal = ""
    n_open = 0
    async with AsyncExitStack() as stack:
        # One more only where it could be one too many.
        for _ in range(wanted + (declared is None or declared <= most)):
            try:
                stack.push_async_callback((await _opened(subject)).close)
            except Refused as exc:
                refusal = exc.code
                break
            except EpisodeError as exc:
                refusal = exc.cause.value
                break
            n_open += 1
    measured = {"open": n_open, "declared": declared, "refusal": refusal or None}
    is_clean = refusal in ("", "CAPACITY_REACHED")
    if n_open == 0:
        return untold(f"No session could be opened ({refusal}).", **measured)
    if declared is not None and n_open < wanted:
        return failed(
            f"{declared} slots are declared, {n_open} could be opened ({refusal}).", **measured
        )
    if not is_clean:
        return warned(
            f"One session more than {n_open} ends with {refusal} instead of CAPACITY_REACHED, "
            "which looks like a fault.",
            **measured,
        )
    if n_open == 1:
        return warned("One episode at a time: rollouts run one after the other.", **measured)
    if not refusal:
        return passed(f"At least {n_open} episodes at a time.", **measured)
    return passed(f"{n_open} episodes at a time; one more is refused cleanly.", **measured)


async def slot_release(subject: Subject) -> Finding:
    """Fills all slots, drops the lines in the middle of a step, and fills them again."""
    declared = subject.capacity
    if subject.is_shared:
        return skipped("Somebody else's server is not filled up.")
    if declared is None or declared > MOST_SESSIONS:
        return skipped(f"Only up to {MOST_SESSIONS} slots are filled to see them come back.")
    action = (await subject.maker()).minimal()
    try:
        for connection in [await _opened(subject) for _ in range(declared)]:
            await _abandon(connection, action)
    except (Refused, EpisodeError) as exc:
        return untold(f"The slots could not be filled: {quoted(str(exc))}", declared=declared)
    started_at = time.monotonic()
    n_back = 0
    async with AsyncExitStack() as stack:
        while n_back < declared:
            try:
                stack.push_async_callback((await _opened(subject)).close)
                n_back += 1
            except (Refused, EpisodeError):
                if time.monotonic() - started_at > RELEASE_LIMIT_S:
                    break
                await asyncio.sleep(_PAUSE_S)
    took_s = time.monotonic() - started_at
    measured = {"declared": declared, "back": n_back, "took_s": round(took_s, 2)}
    if n_back < declared:
        return failed(
            f"{n_back} of {declared} abandoned slots came back within {RELEASE_LIMIT_S:g} s.",
            **measured,
        )
    return passed(f"All {declared} abandoned slots came back in {took_s:.1f} s.", **measured)


async def _abandon(connection: EpisodeConnection, action: Mapping[str, Any] | None) -> None:
    """Drops the line while a step is under way, as a killed client does."""
    if action is not None:
        frame = json.dumps({"type": "step", "data": action})
        step = asyncio.ensure_future(
            connection.ask(frame, timeout_s=_PAUSE_S, timeout_cause=Cause.STEP_TIMEOUT)
        )
        await asyncio.wait([step])
        step.exception()  # whatever it brought: the line is dropped now
    connection.abort()


async def _opened(subject: Subject) -> EpisodeConnection:
    """A connection with a started episode. `Refused` or `EpisodeError`; then it is closed."""
    exercise, settings = subject.first, subject.first.settings
    connection = await EpisodeConnection.open(
        subject.address,
        timeout_s=settings.connect_timeout_s,
        max_bytes=settings.max_observation_bytes,
        headers=settings.headers,
    )
    try:
        await connection.ask(
            json.dumps({"type": "reset", "data": {"seed": SEED, **exercise.reset}}),
            timeout_s=settings.reset_timeout_s,
            timeout_cause=Cause.RESET_TIMEOUT,
        )
    except BaseException:
        await connection.close()
        raise
    return connection
