"""Our engines in a world: an adapter from the counting server to `optimizer.engines.contract`.

A lesson is one edit, appended to the instructions; its support is the number of rollouts that
taught it. All failing traces are read, as reading costs nothing here; `lessons` limits how many.

A quarter of the budget is set aside for certification on select tasks, which the search never
sees. All of its pairs are run, also behind the crossing that decides, so that their mean is free of
the bias of stopping. Claimed is that mean, or 0 where the seed is shipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from benchmarks.optimizer.proposer import ranked
from benchmarks.optimizer.worlds import Claim, Run, Server, extend
from optimizer.certification import Certifier, CertifyPlan
from optimizer.edits import Edit, Op
from optimizer.engines.contract import SEED, Ask, Candidate, Doing, Phase, Request, Row
from optimizer.errors import BudgetSpent
from optimizer.harness import INSTRUCTIONS
from optimizer.search_plan import SearchPlan, search
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


def searched(engine: str, settings: Mapping[str, Any], *, lessons: int | None = None) -> Run:
    """A whole search of ours, certificate included."""

    def run(server: Server, seed: int) -> Claim:
        adapter = WorldServer(server, lessons=lessons)
        pairs = int(server.budget * CERTIFY_SHARE) // 2
        plan = SearchPlan(
            train=adapter.train,
            select=adapter.select,
            search_rollouts=server.budget - 2 * pairs,
            certify_pairs=pairs,
            engine=engine,
            engine_settings=settings,
            seed=seed,
            to_the_end=True,
        )
        found = search(plan, adapter)
        return Claim(adapter.document(found.shipped), found.claimed, found.is_promotable)

    return run


def one_shot(server: Server, seed: int) -> Claim:
    """No search: the most frequent lessons of the seed's failures, all at once, certified."""
    adapter = WorldServer(server)
    n = min(ONE_SHOT_ROLLOUTS, server.budget // 2)
    used: Counter[str] = Counter()
    requests = []
    for task in islice(passes(adapter.train, seed, "train"), n):
        requests.append(Request(Phase.EVIDENCE, SEED, task.key, used[task.key], seed))
        used[task.key] += 1
    rows = adapter.rollouts(requests, Doing(Phase.EVIDENCE, 0, n, "watching the seed"))
    lessons = ranked(server.world.seed_document, [row.lesson for row in rows])
    candidate = Candidate(tuple(lesson_edit(lesson, 1) for lesson in lessons[:ONE_SHOT_LESSONS]))
    plan = CertifyPlan(adapter.select, pairs=server.left // 2, seed=seed, to_the_end=True)
    certificate = Certifier(plan, adapter).certify(candidate)
    gain = certificate.comparison.mean or 0.0
    if gain <= 0:
        return Claim(server.world.seed_document)
    return Claim(adapter.document(candidate), gain, certificate.is_promotable)
