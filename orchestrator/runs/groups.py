"""Comparing the rollouts of a task, once all rollouts of their run have been attempted.

A rollout with such a criterion is `judging` until then: its episode is over, its other verdicts
stand, and it has no score. The group is what waits of a task in one run, whatever its harness; what
errored on the way is not in it. Verdicts, scores and ends of a group are one transaction. A run
that is killed before finds its groups still waiting; what judges have said is not asked again.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connection

from orchestrator.events.models import Event
from orchestrator.events.services import NewEvent
from orchestrator.jobs.registry import JobContext
from orchestrator.judging.services import grading_services
from orchestrator.runs.grading import cause_of, state_of
from orchestrator.runs.models import Rollout, RolloutState, Run, VerdictRecord
from orchestrator.runs.queries import ended_payload
from orchestrator.runs.record import Announce, verdict_event
from orchestrator.runs.recorder import Recorder, Write
from orchestrator.runs.transcripts import transcripts_of
from rubrics.aggregate import aggregate
from rubrics.codec import from_json
from rubrics.grade_group import decide_pending, has_groups
from rubrics.types import RubricSpec, Services, State, Verdict

AT_A_TIME = 4
"""Groups of one run; their judges have limits of their own."""
LOOK_EVERY_S = 0.2

Fields = Mapping[str, Any]


def judge_groups(*, run: Run, ctx: JobContext, announce: Announce) -> None:
    """Decides every group of the run that waits.

    Raises:
        LeaseLost, Cancelled, Stopped: interrupted; what is not decided waits on.
    """
    spec = from_json(run.rubric_version.spec)
    if not has_groups(spec):
        return
    groups = _waiting(run)
    if not groups:
        return
    try:
        asyncio.run(_judge_all(run, spec, groups, ctx, announce))
    except BaseExceptionGroup as failed:
        raise _leaf(failed) from None


def _waiting(run: Run) -> list[list[Rollout]]:
    by_task: dict[int, list[Rollout]] = defaultdict(list)
    rollouts = Rollout.objects.filter(run=run, state=RolloutState.JUDGING)
    for rollout in rollouts.select_related("task", "harness").order_by("id"):
        rollout.run = run
        by_task[rollout.task_id].append(rollout)
    return list(by_task.values())


async def _judge_all(
    run: Run,
    spec: RubricSpec,
    groups: Sequence[Sequence[Rollout]],
    ctx: JobContext,
    announce: Announce,
) -> None:
    slots = asyncio.Semaphore(AT_A_TIME)
    async with Recorder(ctx.fence) as recorder, grading_services(run.project_id) as services:

        async def one(rollouts: Sequence[Rollout]) -> None:
            async with slots:
                await _judge_one(spec, rollouts, services, recorder, announce)

        async with asyncio.TaskGroup() as everything:
            watch = everything.create_task(_watch(ctx))
            async with asyncio.TaskGroup() as work:
                for rollouts in groups:
                    work.create_task(one(rollouts))
            watch.cancel()


async def _judge_one(
    spec: RubricSpec,
    rollouts: Sequence[Rollout],
    services: Services,
    recorder: Recorder,
    announce: Announce,
) -> None:
    seen = await asyncio.to_thread(_read, rollouts)
    decided = await decide_pending(spec, seen.transcripts, seen.verdicts, services=services)
    names = {criterion.id: criterion.label for criterion in spec.criteria}

    def apply() -> dict[int, Sequence[NewEvent]]:
        batches: dict[int, list[NewEvent]] = defaultdict(list)
        for rollout in rollouts:
            verdicts = decided[rollout.pk]
            before = {v.criterion for v in seen.verdicts[rollout.pk] if v.state is State.PENDING}
            if not _store(spec, rollout, verdicts, before):
                continue  # cancelled meanwhile
            events = batches[rollout.stream_id]
            told_now = [v for v in verdicts if v.criterion in before]
            events += [verdict_event(v, names[v.criterion]) for v in told_now]
            told = {**ended_payload(rollout), **seen.details.get(rollout.stream_id, {})}
            events.append(NewEvent("rollout.ended", told))
            for stream_id, more in announce.ended(rollout).items():
                batches[stream_id].extend(more)
        return dict(batches)

    await recorder.record(Write(apply, announce.tally))


def _store(
    spec: RubricSpec, rollout: Rollout, verdicts: Sequence[Verdict], changed: set[str]
) -> bool:
    """Needs a transaction. False for a rollout that does not wait any more."""
    score = aggregate(spec, verdicts)
    values = {
        "state": state_of(score),
        "score": score.value,
        "cause": cause_of(score),
        "message": rollout.message or score.reason,
    }
    waits = Rollout.objects.filter(pk=rollout.pk, state=RolloutState.JUDGING)
    if not waits.update(**values):
        return False
    for name, value in values.items():
        setattr(rollout, name, value)
    for verdict in verdicts:
        if verdict.criterion in changed:
            VerdictRecord.objects.filter(rollout=rollout, criterion=verdict.criterion).update(
                state=verdict.state.value,
                value=verdict.value,
                reason=verdict.reason,
                cites=list(verdict.cites),
                detail=dict(verdict.detail),
            )
    return True


class _Seen:
    """What the group was graded on so far, read in a thread of its own."""

    def __init__(self, rollouts: Sequence[Rollout]) -> None:
        self.transcripts = transcripts_of(rollouts)
        self.verdicts: dict[int, list[Verdict]] = defaultdict(list)
        for row in VerdictRecord.objects.filter(rollout__in=rollouts).order_by("id"):
            self.verdicts[row.rollout_id].append(
                Verdict(
                    row.criterion, State(row.state), row.value, row.reason, tuple(row.cites),
                    row.detail,
                )
            )  # fmt: skip
        told = Event.objects.filter(
            stream_id__in=[rollout.stream_id for rollout in rollouts], kind="rollout.judging"
        ).values_list("stream_id", "payload")
        self.details: dict[int, Fields] = {
            stream_id: {"is_truncated": True}
            for stream_id, payload in told
            if payload.get("is_truncated")
        }


def _read(rollouts: Sequence[Rollout]) -> _Seen:
    try:
        return _Seen(rollouts)
    finally:
        connection.close()  # of a thread that may end


async def _watch(ctx: JobContext) -> None:
    while True:
        ctx.check()
        await asyncio.sleep(LOOK_EVERY_S)


def _leaf(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failed.exceptions[0]
    return _leaf(first) if isinstance(first, BaseExceptionGroup) else first
