"""The job that attacks: rollouts are graded as they are, then each attack on each of them.

Started again after a crash it begins anew; judges answer from what they were asked before. What was
found is stored after every few gradings, so that a page can show it and a cancelled attack keeps
it.

A criterion that compares rollouts gets each attack beside the rollout it was made of and a rival of
the other sort (the right answer, or an honest failure); what counts is the difference within that
group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
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
from rubrics.grade_group import grade_group, has_groups
from rubrics.redteam.attacks import ATTACKS, BY_ID, Attack, is_judge, reseeded
from rubrics.redteam.cases import Case, gave_up, with_answer
from rubrics.redteam.outcome import Graded, advice, outcome
from rubrics.redteam.summary import Line, pairs, place_tallies, summarise
from rubrics.types import RubricSpec, Services, Transcript, Verdict

AT_A_TIME = 8
"""Gradings side by side."""
CHUNK = 16
ENOUGH = 0.5
IT, BASE, RIVAL = "it", "base", "rival"
"""Members of a group that is compared."""
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
class _Asked:
    """One grading."""

    spec: RubricSpec
    transcript: Transcript
    base: Transcript | None = None
    """Beside it, where the rubric compares."""
    rival: Transcript | None = None


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
        self.compares = has_groups(self.spec)
        settings = report.summary.get("settings", {})
        self.n_bases = int(settings.get("bases", DEFAULT_BASES))
        self.purse = CappedPurse(float(settings.get("cap_usd", DEFAULT_CAP_USD)))
        self.summary: dict[str, Any] = {"settings": settings, "n_done": 0, "n_total": 0}
        self.results: list[dict[str, Any]] = []
        self.lines: list[Line] = []
        self.references: dict[int, Graded] = {}
        self.tallies: list[tuple[int, int]] = []
        """Pairs that were compared in both orders, and those in which the orders disagreed."""

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
                answers = self._grade(runner, services, [self._asked(p) for p in chunk])
                for item, (graded, beside) in zip(chunk, answers, strict=True):
                    self._take(item, graded, beside)
                self.ctx.progress()
            self._store()
        return ""

    def _grounds(self, runner: asyncio.Runner, services: Services) -> list[_Ground]:
        """With at least one that failed: what deserves nothing shows what is paid for nothing."""
        found: list[_Ground] = []

        def add(bases: Sequence[Base]) -> None:
            asked = [
                _Asked(self.spec, b.transcript, rival=gave_up(Case(b.transcript, self.spec)))
                for b in bases
            ]
            for base, (graded, _) in zip(bases, self._grade(runner, services, asked), strict=True):
                is_success = is_rollout_passed(self.spec, graded.score) is True
                found.append(_Ground(len(found), base, graded, is_success))

        add(choose(self.report.rubric, self.n_bases))
        if not any(ground.is_success for ground in found):
            # A rubric of scales may pass nothing in full: what got most of it stands for success.
            found = [replace(g, is_success=(g.graded.value or 0.0) >= ENOUGH) for g in found]
        passed = [ground for ground in found if ground.is_success]
        if len(passed) == len(found):
            first = passed[0]
            case = Case(first.base.transcript, self.spec, is_success=True)
            add([Base(f"{first.base.label}, given up", gave_up(case), first.base.rollout)])
        return found

    def _asked(self, planned: _Planned) -> _Asked:
        base = planned.ground.base.transcript
        case = Case(base, self.spec, planned.ground.is_success)
        rival = gave_up(case)
        if planned.attack.id == "again":
            return _Asked(self.again, planned.transcript, rival=rival)  # in the same company
        if not planned.ground.is_success and base.expected is not None:
            rival = with_answer(base, base.expected)
        return _Asked(self.spec, planned.transcript, base, rival)

    def _grade(
        self, runner: asyncio.Runner, services: Services, asked: Sequence[_Asked]
    ) -> list[tuple[Graded, Graded | None]]:
        """Each, and the rollout that stood beside it where the rubric compares."""
        self.ctx.check()
        answers = runner.run(self._graded(asked, services))
        found = []
        for item, verdicts in zip(asked, answers, strict=True):
            it = Graded(aggregate(item.spec, verdicts[IT]), verdicts[IT])
            beside = verdicts.get(BASE)
            found.append((it, Graded(aggregate(item.spec, beside), beside) if beside else None))
        return found

    async def _graded(
        self, asked: Sequence[_Asked], services: Services
    ) -> list[dict[str, list[Verdict]]]:
        slots = asyncio.Semaphore(AT_A_TIME)

        async def one(item: _Asked) -> dict[str, list[Verdict]]:
            async with slots:
                if not self.compares:
                    alone = await grade_async(item.spec, item.transcript, services=services)
                    return {IT: alone}
                members = {IT: item.transcript, BASE: item.base, RIVAL: item.rival}
                group = {name: member for name, member in members.items() if member is not None}
                return await grade_group(item.spec, group, services=services)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(item)) for item in asked]
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

    def _take(self, item: _Planned, graded: Graded, beside: Graded | None) -> None:
        ground, attack = item.ground, item.attack
        before = ground.graded if beside is None else beside
        if attack.id == "reference" and beside is None:
            self.references[ground.number] = graded
        got = outcome(attack, self.spec, graded, before, self.references.get(ground.number))
        self.tallies += place_tallies(graded.verdicts)
        names = {c.id: c.label for c in self.spec.criteria}
        payers = [payer.criterion for payer in got.payers]
        self.results.append(
            {
                "attack": attack.id,
                "base": ground.number,
                "rollout": ground.base.rollout,
                "state": graded.score.state.value,
                "score": graded.value,
                "before": before.value,
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
                before=before.value,
                is_paid=got.is_paid,
                judged=_judged(self.spec, before, graded),
            )
        )
        self.summary["n_done"] = len(self.results)

    def _store(self) -> None:
        self.summary["numbers"] = {**summarise(self.lines), "pairs": pairs(self.tallies)}
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
