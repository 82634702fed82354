"""The boundary around a grader: a deadline, and whatever breaks becomes its finding."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from orchestrator.environments.conformance.finding import Finding, quoted, untold
from orchestrator.environments.conformance.graders import Grader
from orchestrator.environments.conformance.subject import Subject
from orchestrator.environments.errors import EpisodeError

DEADLINE_S = 60.0
"""Of one grader, beside what slow resets add."""
WATCH_S = 0.2
"""How soon a check notices that it should end."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Graded:
    finding: Finding
    duration_s: float


async def grade(
    grader: Grader,
    subject: Subject,
    *,
    deadline_s: float = DEADLINE_S,
    watch: Callable[[], None] = lambda: None,
) -> Graded:
    """Runs one grader. `watch` is called again and again; what it raises ends the grader and
    passes through.
    """
    started_at = time.monotonic()
    task = asyncio.ensure_future(_guarded(grader, subject, deadline_s))
    try:
        while not task.done():
            watch()
            await asyncio.wait([task], timeout=WATCH_S)
        finding = task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
    return Graded(finding, time.monotonic() - started_at)


async def _guarded(grader: Grader, subject: Subject, deadline_s: float) -> Finding:
    try:
        async with asyncio.timeout(deadline_s):
            return await grader(subject)
    except TimeoutError:
        return untold(f"The check did not end within {deadline_s:g} s.", deadline_s=deadline_s)
    except EpisodeError as exc:
        return untold(f"{exc.cause}: {quoted(exc.message, 300)}")
    except Exception as exc:  # boundary: a grader that breaks is its own finding
        log.exception("a grader broke")
        return untold(f"The check itself broke: {type(exc).__name__}: {quoted(str(exc), 300)}")
