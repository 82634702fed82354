"""Our engines in a world: an adapter from the counting server to `optimizer.engines.contract`.

A lesson is one edit, appended to the instructions; its support is the number of rollouts that
taught it. All failing traces are read, as reading costs nothing here; `lessons` limits how many.

A quarter of the budget is set aside for certification on select tasks, which the search never
sees. Claimed is what the certificate's fresh pairs show, or 0 where the seed is shipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.optimizer.proposer import ranked
from benchmarks.optimizer.worlds import Claim, Run, Server, extend
from optimizer.edits import Edit, Op
from optimizer.engines.contract import SEED, Ask, Candidate, Doing, Engine, Request, Row, SearchTask
from optimizer.errors import BudgetSpent
from optimizer.harness import INSTRUCTIONS
from optimizer.statistics import EProcess, Verdict, e_process
from optimizer.tasks import TaskRef, passes

CERTIFY_SHARE = 0.25
ONE_SHOT_ROLLOUTS, ONE_SHOT_LESSONS = 160, 6


class WorldServer:
    """A world as our engines see it."""

    def __init__(self, server: Server, *, lessons: int | None = None) -> None:
        self.server = server
        self.train = tuple(TaskRef(f"train/{i}") for i in range(len(server.world.train)))
        self.select = tuple(TaskRef(f"select/{i}") for i in range(len(server.world.select)))
        self._tasks = {
            **{f"train/{i}": task for i, task in enumerate(server.world.train)},
            **{f"select/{i}": task for i, task in enumerate(server.world.select)},
        }
        self._lessons = lessons
        self._documents: dict[str, str] = {SEED.key: server.world.seed_document}
        self.rows: dict[tuple[str, str, int], Row] = {}

    def rollouts(self, requests: Sequence[Request], doing: Doing) -> list[Row]:
        if len(requests) > self.server.left:
            raise BudgetSpent(f"{len(requests)} rollouts do not fit into {self.server.left}")
        rows = []
        for request in requests:
            if request.key in self.rows:
                raise ValueError(f"asked twice for replicate {request.replicate} on {request.task}")
            outcome = self.server.rollout(
                self._tasks[request.task], self.document(request.candidate)
            )
            row = Row(
                candidate=request.candidate.key,
                task=request.task,
                replicate=request.replicate,
                score=outcome.reward,
                phase=request.phase,
                lesson=outcome.lesson,
            )
            self.rows[row.key] = row
            rows.append(row)
        return rows

    def edits(self, ask: Ask) -> Sequence[Edit]:
        """One per distinct lesson of the rows, by first appearance."""
        support: dict[str, int] = {}
        for lesson in [row.lesson for row in ask.rows if row.lesson][: self._lessons]:
            support[lesson] = support.get(lesson, 0) + 1
        return [lesson_edit(lesson, n) for lesson, n in support.items()]

    def document(self, candidate: Candidate) -> str:
        known = self._documents.get(candidate.key)
        if known is None:
            lessons = [edit.content for edit in candidate.edits]
            known = extend(self.server.world, self.server.world.seed_document, lessons)
            self._documents[candidate.key] = known
        return known


def lesson_edit(lesson: str, support: int) -> Edit:
    return Edit(
        op=Op.APPEND, component=INSTRUCTIONS, content=lesson, operator="lessons", support=support
    )


@dataclass(frozen=True)
class Certified:
    test: EProcess
    mean: float
    """Difference on all pairs that were run."""


def certify(server: Server, document: str, seed: int) -> Certified | None:
    """Fresh pairs of the document and the seed until fewer than two rollouts are left."""
    world = server.world
    select = tuple(TaskRef(str(i)) for i in range(len(world.select)))
    order = passes(select, seed, "select")
    differences: list[float] = []
    while server.left >= 2:
        task = world.select[int(next(order).key)]
        base = server.rollout(task, world.seed_document).reward
        differences.append(server.rollout(task, document).reward - base)
    if not differences:
        return None
    return Certified(e_process(differences), sum(differences) / len(differences))


def claim_of(server: Server, document: str, seed: int) -> Claim:
    """What may be said about a document, and what is shipped: the seed where its pairs are against
    it.
    """
    found = certify(server, document, seed)
    if found is None or found.mean <= 0:
        return Claim(server.world.seed_document)
    return Claim(document, found.mean, found.test.verdict is Verdict.IMPROVED)


def searched(engine: Engine, *, lessons: int | None = None) -> Run:
    """An engine of ours, its winner certified."""

    def run(server: Server, seed: int) -> Claim:
        adapter = WorldServer(server, lessons=lessons)
        reserve = int(server.budget * CERTIFY_SHARE)
        task = SearchTask(train=adapter.train, rollouts=server.budget - reserve, seed=seed)
        found = engine.run(task, adapter)
        if not found.ranked:
            return Claim(server.world.seed_document)
        return claim_of(server, adapter.document(found.ranked[0]), seed)

    return run


def one_shot(server: Server, seed: int) -> Claim:
    """No search: the most frequent lessons of the seed's failures, all at once."""
    world = server.world
    order = passes([TaskRef(str(i)) for i in range(len(world.train))], seed, "train")
    lessons = [
        server.rollout(world.train[int(next(order).key)], world.seed_document).lesson
        for _ in range(min(ONE_SHOT_ROLLOUTS, server.budget // 2))
    ]
    chosen = ranked(world.seed_document, lessons)[:ONE_SHOT_LESSONS]
    return claim_of(server, extend(world, world.seed_document, chosen), seed)
