"""gepa 0.1.4, its own code, in a world: `gepa.optimize` with an adapter and the shared proposer.

The candidate has one text component. Rewards are its scores; lessons are its feedback, "ok" where
there is none. Its reflection model is a function that reads document and lessons off gepa's own
prompt. The train tasks are its train set, the select tasks its validation set; all options that no
configuration names are gepa's defaults. Claimed is its best validation mean over the seed's first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gepa
from gepa.core.adapter import EvaluationBatch
from gepa.strategies.proposal_sampling import PxNSampling
from gepa.strategies.proposal_selection import BestImprovement

from benchmarks.optimizer.proposer import LIMIT, PromptChanged, propose
from benchmarks.optimizer.worlds import Claim, Outcome, Run, Server, World, extend

COMPONENT = "document"
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "gepa": {},
    "gepa-8": {"reflection_minibatch_size": 8},
    "gepa-2x4": {"sampling_strategy": PxNSampling(2, 4)},
    "gepa-2x4-best": {
        "sampling_strategy": PxNSampling(2, 4),
        "selection_strategy": BestImprovement(),
    },
    "gepa-2x2-8-best": {
        "reflection_minibatch_size": 8,
        "sampling_strategy": PxNSampling(2, 2),
        "selection_strategy": BestImprovement(),
    },
    "gepa-8-ledger": {"reflection_minibatch_size": 8},
}
Writer = Callable[[str, Sequence[str]], Sequence[str]]
"""Document and lessons to the lessons that are to be added."""
_CURRENT = re.compile(r"\A.*?```\n(.*)\n```\n\nThe following are examples", re.DOTALL)
_FEEDBACK = re.compile(r"^## Feedback\n(.*)$", re.MULTILINE)


def configured(name: str) -> Run:
    options = CONFIGURATIONS[name]

    def run(server: Server, seed: int) -> Claim:
        watch = _Watch(server)
        write: Writer = _Ledger().propose if name == "gepa-8-ledger" else propose
        gepa.optimize(
            seed_candidate={COMPONENT: server.world.seed_document},
            trainset=list(server.world.train),
            valset=list(server.world.select),
            adapter=_Adapter(server),
            reflection_lm=_reflector(server.world, write),
            max_metric_calls=server.budget,
            seed=seed,
            callbacks=[watch],
            logger=_Silent(),
            **options,
        )
        return watch.claim

    return run


class _Adapter:
    propose_new_texts = None

    def __init__(self, server: Server) -> None:
        self._server = server

    def evaluate(
        self, batch: list[Any], candidate: dict[str, str], capture_traces: bool = False
    ) -> EvaluationBatch[Outcome, Outcome]:
        outcomes = [self._server.rollout(task, candidate[COMPONENT]) for task in batch]
        return EvaluationBatch(
            outputs=outcomes,
            scores=[outcome.reward for outcome in outcomes],
            trajectories=outcomes if capture_traces else None,
        )

    def make_reflective_dataset(
        self,
        candidate: dict[str, str],
        eval_batch: EvaluationBatch[Outcome, Outcome],
        components_to_update: list[str],
    ) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        seen = eval_batch.trajectories or []
        records = [{"Feedback": outcome.lesson or "ok"} for outcome in seen]
        return dict.fromkeys(components_to_update, records)


def _reflector(world: World, write: Writer) -> Callable[[str], str]:
    def reflect(prompt: str) -> str:
        current = _CURRENT.match(prompt)
        if current is None:
            raise PromptChanged(f"gepa: {prompt[:200]!r}")
        document = current.group(1)
        feedback = _FEEDBACK.findall(prompt[current.end() :])
        lessons = write(document, [lesson for lesson in feedback if lesson != "ok"])
        return f"```\n{extend(world, document, lessons)}\n```"

    return reflect


class _Ledger:
    """A proposer that remembers: support of all lessons so far, less twice the earlier tries."""

    def __init__(self) -> None:
        self._support: Counter[str] = Counter()
        self._tries: Counter[tuple[str, str]] = Counter()

    def propose(self, document: str, lessons: Sequence[str]) -> list[str]:
        self._support.update(lessons)
        rank = {
            lesson: n - 2 * self._tries[document, lesson]
            for lesson, n in self._support.items()
            if lesson not in document
        }
        chosen = sorted(rank, key=lambda lesson: (-rank[lesson], lesson))[:LIMIT]
        self._tries.update((document, lesson) for lesson in chosen)
        return chosen


class _Watch:
    """The best document by validation mean at any time, in case the budget ends the run."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._seed: float | None = None
        self._best = -1.0
        self.claim = server.claim

    def on_valset_evaluated(self, event: Mapping[str, Any]) -> None:
        score = float(event["average_score"])
        if self._seed is None:
            self._seed = score
        if score > self._best:
            self._best = score
            gain = score - self._seed
            self.claim = Claim(event["candidate"][COMPONENT], gain, gain > 0)
            self._server.report(self.claim)


class _Silent:
    def log(self, message: str) -> None:
        pass
