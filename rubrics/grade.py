"""Grading one rollout: every criterion of a rubric against one transcript.

`grade` is for rubrics of code kinds alone and needs no event loop; `grade_async` takes any
rubric, runs the kinds that wait side by side, and gives each a deadline. Both hold the one
error boundary of grading: a criterion that raises, whatever it raises, becomes an errored
verdict with its reason, and its siblings go on.

Criteria are graded in the rubric's order. After a gate that is not passed the rest is not
graded at all; in a sequence nothing is graded after a criterion that was not passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping

from rubrics.aggregate import aggregate, is_passed
from rubrics.errors import CriterionFailed, RubricInvalid
from rubrics.kinds import KINDS
from rubrics.kinds.base import Kind
from rubrics.types import (
    Aggregation,
    Applicability,
    Criterion,
    RubricSpec,
    Score,
    Services,
    State,
    Transcript,
    Verdict,
)

CRITERION_TIMEOUT_S = 120.0
"""How long one criterion may wait for its services;

judges behind a busy endpoint take tens of seconds.
"""

NOTHING: Mapping[str, Verdict] = {}


def grade(
    spec: RubricSpec, transcript: Transcript, *, known: Mapping[str, Verdict] = NOTHING
) -> list[Verdict]:
    """One verdict per criterion, in the rubric's order.

    `known`: verdicts by criterion that are taken as they are, where gates and sequences let them
    come to be. Raises RubricInvalid if a criterion needs services (`grade_async`) or is of an
    unknown kind.
    """
    waiting = [c.id for c in spec.criteria if c.id not in known and _kind(c).decide is None]
    if waiting:
        raise RubricInvalid(
            f"criteria that need services cannot be graded here: {', '.join(waiting)}"
        )
    verdicts: dict[str, Verdict] = {}
    for stage in _stages(spec):
        for criterion in stage:
            verdicts[criterion.id] = (
                _skipped(spec, criterion, verdicts)
                or known.get(criterion.id)
                or _decide(criterion, transcript)
            )
        if _is_shut(stage[-1], verdicts[stage[-1].id]):
            break
    return _with_ungraded(spec, verdicts)


async def grade_async(
    spec: RubricSpec,
    transcript: Transcript,
    *,
    services: Services,
    timeout_s: float = CRITERION_TIMEOUT_S,
    known: Mapping[str, Verdict] = NOTHING,
) -> list[Verdict]:
    """As `grade`, for any kind. A criterion that takes longer than `timeout_s` is errored."""
    verdicts: dict[str, Verdict] = {}
    for stage in _stages(spec):
        verdicts |= {
            c.id: v
            for c in stage
            if (v := _skipped(spec, c, verdicts) or known.get(c.id)) is not None
        }
        waiting = [c for c in stage if c.id not in verdicts]
        async with asyncio.TaskGroup() as group:
            running = [
                group.create_task(_decide_async(criterion, transcript, services, timeout_s))
                for criterion in waiting
            ]
        verdicts |= {c.id: task.result() for c, task in zip(waiting, running, strict=True)}
        if _is_shut(stage[-1], verdicts[stage[-1].id]):
            break
    return _with_ungraded(spec, verdicts)


def is_group(criterion: Criterion) -> bool:
    """Whether it compares the rollouts of a task."""
    return _kind(criterion).decide_group is not None


def score(spec: RubricSpec, transcript: Transcript) -> tuple[Score, list[Verdict]]:
    """`grade` and `aggregate` in one call."""
    verdicts = grade(spec, transcript)
    return aggregate(spec, verdicts), verdicts


def why_not_applicable(applies: Applicability, transcript: Transcript) -> str | None:
    """The first condition that the rollout does not meet; None when the criterion concerns it."""
    for label, accepted in applies.labels.items():
        value = transcript.labels.get(label)
        if value not in accepted:
            return f"{label} is {value!r}, not {' or '.join(accepted)}"
    if applies.answered is not None and applies.answered is not (transcript.answer is not None):
        return "only with an answer" if applies.answered else "only without an answer"
    if transcript.n_steps < applies.min_steps:
        return f"only from {applies.min_steps} steps on"
    return None


def _decide(criterion: Criterion, transcript: Transcript) -> Verdict:
    decide = _kind(criterion).decide
    assert decide is not None  # `grade` has looked
    reason = why_not_applicable(criterion.applies, transcript)
    if reason is not None:
        return Verdict.not_applicable(criterion, reason)
    try:
        return decide(criterion, transcript)
    except Exception as error:  # the boundary named in the module's docstring
        return Verdict.errored(criterion, reason_of(error))


async def _decide_async(
    criterion: Criterion, transcript: Transcript, services: Services, timeout_s: float
) -> Verdict:
    decide = _kind(criterion).decide_async
    if decide is None:
        return _decide(criterion, transcript)
    reason = why_not_applicable(criterion.applies, transcript)
    if reason is not None:
        return Verdict.not_applicable(criterion, reason)
    try:
        async with asyncio.timeout(timeout_s):
            return await decide(criterion, transcript, services)
    except TimeoutError:
        return Verdict.errored(criterion, f"no verdict within {timeout_s:g} s")
    except Exception as error:  # the boundary named in the module's docstring
        return Verdict.errored(criterion, reason_of(error))


def reason_of(error: Exception) -> str:
    if isinstance(error, CriterionFailed) and str(error).strip():
        return str(error)
    return f"{type(error).__name__}: {error}"


def _kind(criterion: Criterion) -> Kind:
    try:
        return KINDS[criterion.kind]
    except KeyError:
        raise RubricInvalid(f"{criterion.id}.kind: {criterion.kind!r} is unknown") from None


def _stages(spec: RubricSpec) -> Iterator[list[Criterion]]:
    """Runs of criteria that may be graded side by side.

    Each ends with a gate, with a member of a sequence, or with the rubric.
    """
    stage: list[Criterion] = []
    for criterion in spec.criteria:
        stage.append(criterion)
        if criterion.gate or _is_in_sequence(spec, criterion):
            yield stage
            stage = []
    if stage:
        yield stage


def _is_in_sequence(spec: RubricSpec, criterion: Criterion) -> bool:
    return _sequence_of(spec, criterion) is Aggregation.SEQUENTIAL


def _sequence_of(spec: RubricSpec, criterion: Criterion) -> Aggregation:
    """How the criterion's own group, or the rubric, makes one score of its like."""
    if not criterion.group:
        return spec.aggregation
    return next(group.aggregation for group in spec.groups if group.id == criterion.group)


def _is_shut(criterion: Criterion, verdict: Verdict) -> bool:
    return criterion.gate and is_passed(criterion, verdict) is False


def _skipped(
    spec: RubricSpec, criterion: Criterion, verdicts: Mapping[str, Verdict]
) -> Verdict | None:
    """A verdict for what comes after the end of its sequence; None if it is to be graded."""
    if not _is_in_sequence(spec, criterion):
        return None
    for earlier in spec.criteria:
        if earlier.id == criterion.id:
            return None
        verdict = verdicts.get(earlier.id)
        if verdict is None or earlier.group != criterion.group:
            continue
        if verdict.state is State.ERRORED or is_passed(earlier, verdict) is False:
            return Verdict.not_applicable(
                criterion, f"not graded: {earlier.id} before it was not passed"
            )
    return None


def _with_ungraded(spec: RubricSpec, verdicts: Mapping[str, Verdict]) -> list[Verdict]:
    """All verdicts in the rubric's order; what stands behind a shut gate was not graded."""
    gates = [c.id for c in spec.criteria if c.id in verdicts and _is_shut(c, verdicts[c.id])]
    return [
        verdicts.get(criterion.id)
        or Verdict.not_applicable(criterion, f"not graded: {gates[-1]} was not passed")
        for criterion in spec.criteria
    ]
