"""Grading the rollouts of one task that a rubric compares with one another.

Each rollout is graded by itself first, while what compares them is known as pending (`held`). Then
each such criterion is asked once about all rollouts that it concerns, and its verdicts take the
place of the pending ones. Rollouts that broke on the way are not in the group: an episode that has
no end is nothing to compare with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from rubrics.grade import grade_async, is_group, reason_of, why_not_applicable
from rubrics.kinds import KINDS
from rubrics.types import Criterion, RubricSpec, Services, State, Transcript, Verdict

Name = TypeVar("Name", bound=Hashable)

GROUP_TIMEOUT_S = 900.0
"""For one criterion and one group: many calls, each of which may wait for its endpoint."""

WAITS = "waits for the other rollouts of its task"


def has_groups(spec: RubricSpec) -> bool:
    return any(is_group(criterion) for criterion in spec.criteria)


def held(spec: RubricSpec, transcript: Transcript) -> dict[str, Verdict]:
    """Pending verdicts of what compares rollouts, to be `known` while one is graded by itself."""
    found = {}
    for criterion in spec.criteria:
        if is_group(criterion):
            reason = why_not_applicable(criterion.applies, transcript)
            found[criterion.id] = (
                Verdict(criterion.id, State.PENDING, reason=WAITS)
                if reason is None
                else Verdict.not_applicable(criterion, reason)
            )
    return found


async def grade_group(
    spec: RubricSpec,
    transcripts: Mapping[Name, Transcript],
    *,
    services: Services,
    timeout_s: float = GROUP_TIMEOUT_S,
) -> dict[Name, list[Verdict]]:
    """All verdicts of each rollout of one task, in the rubric's order."""
    async with asyncio.TaskGroup() as group:
        tasks = {
            name: group.create_task(
                grade_async(spec, transcript, services=services, known=held(spec, transcript))
            )
            for name, transcript in transcripts.items()
        }
    alone = {name: task.result() for name, task in tasks.items()}
    return await decide_pending(spec, transcripts, alone, services=services, timeout_s=timeout_s)


async def decide_pending(
    spec: RubricSpec,
    transcripts: Mapping[Name, Transcript],
    alone: Mapping[Name, Sequence[Verdict]],
    *,
    services: Services,
    timeout_s: float = GROUP_TIMEOUT_S,
) -> dict[Name, list[Verdict]]:
    """`alone` with its pending verdicts decided. Verdicts that are not pending stay as they are."""
    found = {name: list(verdicts) for name, verdicts in alone.items()}
    for criterion in spec.criteria:
        if not is_group(criterion):
            continue
        waiting = [
            name
            for name, verdicts in found.items()
            if any(v.criterion == criterion.id and v.state is State.PENDING for v in verdicts)
        ]
        if not waiting:
            continue
        members = {str(i): transcripts[name] for i, name in enumerate(waiting)}
        decided = await _decided(criterion, members, services, timeout_s)
        for i, name in enumerate(waiting):
            found[name] = [
                decided[str(i)] if v.criterion == criterion.id else v for v in found[name]
            ]
    return found


async def _decided(
    criterion: Criterion,
    members: Mapping[str, Transcript],
    services: Services,
    timeout_s: float,
) -> Mapping[str, Verdict]:
    """The boundary of `rubrics.grade`, for a group: a failure is an error of all of them."""
    decide = KINDS[criterion.kind].decide_group
    assert decide is not None  # the caller has looked
    try:
        async with asyncio.timeout(timeout_s):
            return await decide(criterion, members, services)
    except TimeoutError:
        failed = Verdict.errored(criterion, f"no verdicts within {timeout_s:g} s")
    except Exception as error:  # boundary: recorded on every rollout of the group
        failed = Verdict.errored(criterion, reason_of(error))
    return {name: replace(failed) for name in members}
