"""The job that grades past rollouts again, chunk by chunk: each is stored and told of at once.

Started again after a crash it goes on with those that have no row. What waits (judges, code in the
sandbox) is graded 8 rollouts side by side; criteria of code alone need no event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from orchestrator.grading import kept
from orchestrator.grading.groups import whole_groups
from orchestrator.grading.models import Regrade, RegradedScore, RegradeState
from orchestrator.grading.past import why_not_graded
from orchestrator.grading.redteam import jobs as redteam_jobs
from orchestrator.grading.regrade import (
    JOB_KIND,
    end_regrade,
    mark_running,
    missing_ids,
    store_scores,
)
from orchestrator.grading.suggest import jobs as suggest_jobs
from orchestrator.jobs.errors import Cancelled
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.judging.services import grading_services
from orchestrator.runs.models import Rollout, VerdictRecord
from orchestrator.runs.transcripts import transcripts_of, without_trace
from rubrics.aggregate import aggregate
from rubrics.codec import from_json
from rubrics.grade import grade, grade_async
from rubrics.grade_group import decide_pending, has_groups, held
from rubrics.kinds import KINDS
from rubrics.types import RubricSpec, Services, State, Transcript, Verdict

__all__ = ["redteam_jobs", "regrade", "suggest_jobs"]
"""The jobs of other parts register on import."""

AT_A_TIME = 8
"""Rollouts that are graded side by side."""
CHUNK = 50
CHUNK_WITH_JUDGES = 8
"""Judges take seconds: what they have said is stored soon."""
LOOK_EVERY_S = 0.2
"""How often a chunk that waits looks whether it was cancelled."""


def record_unfinished(job: Job) -> None:
    state = RegradeState.CANCELLED if job.state == JobState.CANCELLED else RegradeState.FAILED
    end_regrade(regrade_id=job.spec["regrade_id"], state=state, error=job.error)


@job_handler(JOB_KIND, on_unfinished=record_unfinished)
def regrade(ctx: JobContext) -> None:
    asked = Regrade.objects.select_related("rubric").filter(pk=ctx.spec["regrade_id"]).first()
    if asked is None:
        return
    mark_running(regrade=asked, fence=ctx.fence)
    grader = _Grader(asked, ctx)
    try:
        grader.grade_all()
    except Cancelled:
        end_regrade(regrade_id=asked.pk, state=RegradeState.CANCELLED, fence=ctx.fence)
        raise
    end_regrade(regrade_id=asked.pk, state=RegradeState.COMPLETED, fence=ctx.fence)


@dataclass(frozen=True)
class _Past:
    """One rollout to be graded."""

    rollout_id: int
    transcript: Transcript
    known: Mapping[str, Verdict]
    why_not: str = ""
    """Its episode has no result, so there is nothing to grade; the reason."""


class _Grader:
    def __init__(self, asked: Regrade, ctx: JobContext) -> None:
        self.asked, self.ctx = asked, ctx
        self.spec = from_json(asked.spec)
        self.names = {criterion.id: criterion.label for criterion in self.spec.criteria}
        self.keep = asked.selection.get("keep", "")
        self._unchanged: dict[int, frozenset[str]] = {}
        """By the id of the version that a run was graded by."""

    def grade_all(self) -> None:
        ids = missing_ids(self.asked)
        kinds = {c.kind for c in self.spec.criteria if KINDS[c.kind].decide is None}
        size = CHUNK if kinds <= {"python"} else CHUNK_WITH_JUDGES
        with ExitStack() as stack:
            runner: asyncio.Runner | None = None
            services: Services | None = None
            if kinds:
                runner = stack.enter_context(asyncio.Runner())
                opened = grading_services(self.asked.project_id)
                services = runner.run(opened.__aenter__())
                stack.callback(lambda: runner.run(opened.__aexit__(None, None, None)))
            for chunk in self._chunks(ids, size):
                self.ctx.check()
                past = self._read(chunk)
                if runner is None or services is None:
                    verdicts = [
                        [] if p.why_not else grade(self.spec, p.transcript, known=p.known)
                        for p in past
                    ]
                else:
                    verdicts = runner.run(self._graded(past, services))
                self._store(past, verdicts)
                self.ctx.progress()

    def _chunks(self, ids: Sequence[int], size: int) -> Sequence[Sequence[int]]:
        """A group that is compared is one chunk: it is stored as a whole or not at all."""
        if has_groups(self.spec):
            return whole_groups(ids)
        return [ids[start : start + size] for start in range(0, len(ids), size)]

    def _read(self, ids: Sequence[int]) -> list[_Past]:
        rollouts = list(
            Rollout.everything.select_related("task", "run__rubric_version").filter(pk__in=ids)
        )
        stored: dict[int, list[Verdict]] = {}
        if self.keep:
            rows = VerdictRecord.objects.filter(rollout_id__in=ids).values()
            for row in rows:
                stored.setdefault(row["rollout_id"], []).append(kept.verdict_of(row))
        transcripts = transcripts_of(rollouts)
        gone = without_trace(rollouts)
        return [
            _Past(
                rollout.pk,
                transcripts[rollout.pk],
                kept.held(
                    stored.get(rollout.pk, ()),
                    self._still_hold(rollout),
                    with_errors=self.keep == "all",
                ),
                why_not_graded(rollout, is_gone=rollout.pk in gone),
            )
            for rollout in rollouts
        ]

    def _still_hold(self, rollout: Rollout) -> frozenset[str]:
        version = rollout.run.rubric_version
        if not self.keep:
            return frozenset()
        if version.pk not in self._unchanged:
            self._unchanged[version.pk] = kept.unchanged(from_json(version.spec), self.spec)
        return self._unchanged[version.pk]

    async def _graded(self, past: Sequence[_Past], services: Services) -> list[list[Verdict]]:
        slots = asyncio.Semaphore(AT_A_TIME)

        async def one(rollout: _Past) -> list[Verdict]:
            if rollout.why_not:
                return []
            async with slots:
                known = {**held(self.spec, rollout.transcript), **rollout.known}
                return await grade_async(
                    self.spec, rollout.transcript, services=services, known=known
                )

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(rollout)) for rollout in past]
                watch = group.create_task(self._watch())
                await asyncio.wait(tasks)
                alone = {p.rollout_id: t.result() for p, t in zip(past, tasks, strict=True)}
                transcripts = {p.rollout_id: p.transcript for p in past}
                found = await decide_pending(self.spec, transcripts, alone, services=services)
                watch.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [found[p.rollout_id] for p in past]

    async def _watch(self) -> None:
        """Ends a chunk that waits for judges as soon as nobody wants it any more."""
        while True:
            self.ctx.check()
            await asyncio.sleep(LOOK_EVERY_S)

    def _store(self, past: Sequence[_Past], verdicts: Sequence[Sequence[Verdict]]) -> None:
        store_scores(
            regrade=self.asked,
            rows=list(self._rows(self.spec, past, verdicts)),
            fence=self.ctx.fence,
        )

    def _rows(
        self, spec: RubricSpec, past: Sequence[_Past], verdicts: Sequence[Sequence[Verdict]]
    ) -> Iterator[RegradedScore]:
        for rollout, found in zip(past, verdicts, strict=True):
            if rollout.why_not:
                yield RegradedScore(
                    regrade=self.asked,
                    rollout_id=rollout.rollout_id,
                    state=State.ERRORED.value,
                    reason=rollout.why_not,
                )
                continue
            score = aggregate(spec, found)
            yield RegradedScore(
                regrade=self.asked,
                rollout_id=rollout.rollout_id,
                state=score.state.value,
                score=score.value,
                reason=score.reason,
                verdicts=[kept.as_json(v, self.names[v.criterion]) for v in found],
            )
