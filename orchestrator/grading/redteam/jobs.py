"""The job that attacks: rollouts are graded as they are, then each attack on each of them.

Started again after a crash it begins anew; judges answer from what they were asked before. What was
found is stored after every few gradings, so that a page can show it and a cancelled attack keeps
it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from orchestrator.grading import kept
from orchestrator.grading.models import RedTeamReport, RegradeState
from orchestrator.grading.redteam.bases import Base, choose
from orchestrator.grading.redteam.purse import CappedPurse
from orchestrator.grading.redteam.services import (
    DEFAULT_BASES,
    DEFAULT_CAP_USD,
    JOB_KIND,
    end_attack,
    mark_running,
    store,
)
from orchestrator.jobs.errors import Cancelled
from orchestrator.jobs.models import Job, JobState
from orchestrator.jobs.registry import JobContext, job_handler
from orchestrator.judging.services import grading_services
from rubrics.aggregate import aggregate, is_rollout_passed
from rubrics.codec import from_json
from rubrics.grade import grade_async
from rubrics.redteam.attacks import ATTACKS, BY_ID, Attack, is_judge, reseeded
from rubrics.redteam.cases import Case, gave_up
from rubrics.redteam.outcome import Graded, advice, outcome
from rubrics.redteam.summary import Line, summarise
from rubrics.types import RubricSpec, Services, Transcript, Verdict

AT_A_TIME = 8
"""Gradings side by side."""
CHUNK = 16
LOOK_EVERY_S = 0.2
"""How often a chunk that waits for judges looks whether it was cancelled."""


def record_unfinished(job: Job) -> None:
    state = RegradeState.CANCELLED if job.state == JobState.CANCELLED else RegradeState.FAILED
    end_attack(report_id=job.spec["report_id"], state=state, error=job.error)


@job_handler(JOB_KIND, on_unfinished=record_unfinished)
def attack(ctx: JobContext) -> None:
    report = RedTeamReport.objects.select_related("rubric").filter(pk=ctx.spec["report_id"]).first()
    if report is None:
        return
    mark_running(report_id=report.pk, fence=ctx.fence)
    attacker = _Attacker(report, ctx)
    try:
        error = attacker.attack_all()
    except Cancelled:
        end_attack(report_id=report.pk, state=RegradeState.CANCELLED, fence=ctx.fence)
        raise
    state = RegradeState.FAILED if error else RegradeState.COMPLETED
    end_attack(report_id=report.pk, state=state, error=error, fence=ctx.fence)


@dataclass(frozen=True)
class _Ground:
    """A rollout that attacks are made of, with what the rubric says of it."""

    number: int
    base: Base
    graded: Graded
    is_success: bool


@dataclass(frozen=True)
class _Planned:
    attack: Attack
    ground: _Ground
    transcript: Transcript


class _Attacker:
    def __init__(self, report: RedTeamReport, ctx: JobContext) -> None:
        self.report, self.ctx = report, ctx
        self.spec = from_json(report.spec)
        self.again = reseeded(self.spec)
        settings = report.summary.get("settings", {})
        self.n_bases = int(settings.get("bases", DEFAULT_BASES))
        self.purse = CappedPurse(float(settings.get("cap_usd", DEFAULT_CAP_USD)))
        self.summary: dict[str, Any] = {"settings": settings, "n_done": 0, "n_total": 0}
        self.results: list[dict[str, Any]] = []
        self.lines: list[Line] = []
        self.references: dict[int, Graded] = {}

    def attack_all(self) -> str:
        """What kept it from saying anything; empty if nothing did."""
        with ExitStack() as stack:
            runner = stack.enter_context(asyncio.Runner())
            opened = grading_services(self.report.rubric.project_id, purse=self.purse)
            services = runner.run(opened.__aenter__())
            stack.callback(lambda: runner.run(opened.__aexit__(None, None, None)))
            grounds = self._grounds(runner, services)
            self.summary["bases"] = [
                {**g.base.as_json(), "is_success": g.is_success, "score": g.graded.value}
                for g in grounds
            ]
            if all(ground.graded.value is None for ground in grounds):
                self._store()
                return f"No rollout could be graded: {grounds[0].graded.score.reason}"
            planned = list(_plan(self.spec, grounds))
            self.summary["n_total"] = len(planned)
            for start in range(0, len(planned), CHUNK):
                self._store()
                chunk = planned[start : start + CHUNK]
                asked = [
                    (self.again if p.attack.id == "again" else self.spec, p.transcript)
                    for p in chunk
                ]
                for item, graded in zip(chunk, self._grade(runner, services, asked), strict=True):
                    self._take(item, graded)
                self.ctx.progress()
            self._store()
        return ""

    def _grounds(self, runner: asyncio.Runner, services: Services) -> list[_Ground]:
        """With at least one that failed: what deserves nothing shows what is paid for nothing."""
        found: list[_Ground] = []

        def add(bases: Sequence[Base]) -> None:
            asked = [(self.spec, base.transcript) for base in bases]
            for base, graded in zip(bases, self._grade(runner, services, asked), strict=True):
                is_success = is_rollout_passed(self.spec, graded.score) is True
                found.append(_Ground(len(found), base, graded, is_success))

        add(choose(self.report.rubric, self.n_bases))
        passed = [ground for ground in found if ground.is_success]
        if len(passed) == len(found):
            first = passed[0]
            case = Case(first.base.transcript, self.spec, is_success=True)
            add([Base(f"{first.base.label}, given up", gave_up(case), first.base.rollout)])
        return found

    def _grade(
        self,
        runner: asyncio.Runner,
        services: Services,
        asked: Sequence[tuple[RubricSpec, Transcript]],
    ) -> list[Graded]:
        self.ctx.check()
        verdicts = runner.run(self._graded(asked, services))
        return [
            Graded(aggregate(spec, found), found)
            for (spec, _), found in zip(asked, verdicts, strict=True)
        ]

    async def _graded(
        self, asked: Sequence[tuple[RubricSpec, Transcript]], services: Services
    ) -> list[list[Verdict]]:
        slots = asyncio.Semaphore(AT_A_TIME)

        async def one(spec: RubricSpec, transcript: Transcript) -> list[Verdict]:
            async with slots:
                return await grade_async(spec, transcript, services=services)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(*item)) for item in asked]
                watch = group.create_task(self._watch())
                await asyncio.wait(tasks)
                watch.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return [task.result() for task in tasks]

    async def _watch(self) -> None:
        """Ends a chunk that waits for judges as soon as nobody wants it any more."""
        while True:
            self.ctx.check()
            await asyncio.sleep(LOOK_EVERY_S)

    def _take(self, item: _Planned, graded: Graded) -> None:
        ground, attack = item.ground, item.attack
        if attack.id == "reference":
            self.references[ground.number] = graded
        got = outcome(attack, self.spec, graded, ground.graded, self.references.get(ground.number))
        names = {c.id: c.label for c in self.spec.criteria}
        payers = [payer.criterion for payer in got.payers]
        self.results.append(
            {
                "attack": attack.id,
                "base": ground.number,
                "rollout": ground.base.rollout,
                "state": graded.score.state.value,
                "score": graded.value,
                "before": ground.graded.value,
                "allowed": got.allowed,
                "paid": got.is_paid,
                "reason": got.sentence,
                "payers": [
                    {"criterion": p.criterion, "name": names[p.criterion], "before": p.before,
                     "after": p.after, "reason": p.reason}
                    for p in got.payers
                ],
                "advice": advice(attack, self.spec, payers) if got.is_paid else "",
                "verdicts": [kept.as_json(v, names[v.criterion]) for v in graded.verdicts]
                if got.is_paid
                else [],
            }
        )  # fmt: skip
        self.lines.append(
            Line(
                attack=attack.id,
                base=ground.number,
                score=graded.value,
                before=ground.graded.value,
                is_paid=got.is_paid,
                judged=_judged(self.spec, ground.graded, graded),
            )
        )
        self.summary["n_done"] = len(self.results)

    def _store(self) -> None:
        self.summary["numbers"] = summarise(self.lines)
        self.summary["spent"] = {
            "usd": self.purse.spent_usd,
            "cap_usd": self.purse.cap_usd,
            "calls": self.purse.calls,
            "tokens": self.purse.tokens,
            "refused": self.purse.refused,
        }
        store(
            report_id=self.report.pk,
            results=self.results,
            summary=self.summary,
            fence=self.ctx.fence,
        )


def _plan(spec: RubricSpec, grounds: Sequence[_Ground]) -> Iterator[_Planned]:
    """The right answers first: wrong ones are held against them."""
    first = [BY_ID["reference"], *(a for a in ATTACKS if a.id != "reference")]
    for item in first:
        for ground in grounds:
            if ground.graded.value is None or not item.concerns(is_success=ground.is_success):
                continue
            made = item.make(Case(ground.base.transcript, spec, ground.is_success))
            if made is not None:
                yield _Planned(item, ground, made)


def _judged(spec: RubricSpec, before: Graded, after: Graded) -> list[tuple[float, float]]:
    was: Mapping[str, float | None] = {v.criterion: v.value for v in before.verdicts}
    now: Mapping[str, float | None] = {v.criterion: v.value for v in after.verdicts}
    return [
        (a, b)
        for c in spec.criteria
        if is_judge(c.kind)
        and (a := was.get(c.id)) is not None
        and (b := now.get(c.id)) is not None
    ]
