"""GEPA's own search over our edits, where its package is installed (`pip install gepa==0.1.4`).

Its candidate is a text that lists edits; its reflection is our proposers; every one of its metric
calls is a rollout that our server counts. Its evaluation cache stays off, as does everything that
writes files. A part of the train tasks is its validation set: the select tasks belong to the
certificate. Rollouts without a score count for it as the mean of the others of their batch, since
it knows numbers only; a 0 would punish the candidate for a fault of the machine.

It has no state that could be resumed. Here it is run again from its start over the answers that
exist, with the same seed, and so comes to the same place.

Source: Agrawal et al., "GEPA: Reflective Prompt Evolution Can Outperform Reinforcement Learning",
2025; the package's documentation.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any

from optimizer.edits import Edit, are_exclusive
from optimizer.engines.contract import (
    SEED,
    Ask,
    Candidate,
    Doing,
    Found,
    Phase,
    Request,
    Row,
    SearchTask,
    Server,
    Tried,
)
from optimizer.errors import SearchInvalid
from optimizer.seeds import derive
from optimizer.tasks import TaskRef, passes

COMPONENT = "edits"
"""GEPA's one text component: the hashes of the edits, one a line, in order of appearance."""


@dataclass(frozen=True)
class GepaSettings:
    """Sizes; raises SearchInvalid."""

    minibatch: int = 3
    validation: int = 20
    """Train tasks that candidates are scored on as a whole."""
    edits_per_step: int = 2

    def __post_init__(self) -> None:
        for name in ("minibatch", "validation", "edits_per_step"):
            if getattr(self, name) < 1:
                raise SearchInvalid(f"{name}: accepts at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Gepa:
    settings: GepaSettings = field(default_factory=GepaSettings)
    name: str = "gepa"

    def __post_init__(self) -> None:
        """Raises SearchInvalid if the package is missing: before anything is spent."""
        if find_spec("gepa") is None:
            raise SearchInvalid(
                "engine: gepa is not installed; `pip install gepa==0.1.4`, or take `factorial`"
            )

    def run(self, task: SearchTask, server: Server) -> Found:
        """Raises SearchInvalid if the budget is below two passes."""
        gepa = importlib.import_module("gepa")
        core = importlib.import_module("gepa.core.adapter")
        order = passes(task.train, task.seed, "gepa")
        shuffled = [next(order) for _ in task.train]
        n = min(self.settings.validation, len(shuffled) // 2)
        if n < 1 or task.rollouts < 2 * n:
            raise SearchInvalid(
                f"search_rollouts: gepa needs two passes over its {n or 1} validation tasks, "
                f"{task.rollouts} rollouts are too few"
            )
        held_out = {ref.key for ref in shuffled[:n]}
        adapter = _Adapter(self.settings, task, server, core.EvaluationBatch, held_out)
        with contextlib.suppress(_Spent):
            gepa.optimize(
                seed_candidate={COMPONENT: ""},
                trainset=shuffled[n:],
                valset=shuffled[:n],
                adapter=adapter,
                custom_candidate_proposer=adapter.propose,
                reflection_minibatch_size=self.settings.minibatch,
                max_metric_calls=task.rollouts,
                cache_evaluation=False,
                display_progress_bar=False,
                logger=_Silence(),
                track_best_outputs=False,
                seed=derive(task.seed, "gepa") % 2**31,
            )
        return adapter.found(held_out)


class _Spent(BaseException):
    """The budget does not hold GEPA's next batch: it ends with what it has."""


class _Silence:
    def log(self, message: str) -> None:
        """GEPA tells its course on standard output otherwise."""


class _Adapter:
    """GEPA's view of our server."""

    propose_new_texts = None

    def __init__(
        self,
        settings: GepaSettings,
        task: SearchTask,
        server: Server,
        batch_type: Any,
        held_out: set[str],
    ) -> None:
        self.held_out = held_out
        self.settings, self.task, self.server = settings, task, server
        self.batch_type = batch_type
        self.known: dict[str, Edit] = {}
        self.rows: list[Row] = []
        self.replicates: Counter[tuple[str, str]] = Counter()
        self.parents: dict[str, str] = {SEED.key: ""}
        self.candidates: dict[str, Candidate] = {SEED.key: SEED}
        self.rounds = 0

    def evaluate(
        self, batch: Sequence[TaskRef], candidate: Mapping[str, str], capture_traces: bool = False
    ) -> Any:
        if len(self.rows) + len(batch) > self.task.rollouts:
            raise _Spent
        mine = self._candidate(candidate)
        requests = [self._request(mine, task) for task in batch]
        text = f"gepa, {len(self.candidates)} candidates so far"
        doing = Doing(Phase.RACE, len(self.rows), self.task.rollouts, text)
        rows = [replace(r, phase=Phase.RACE) for r in self.server.rollouts(requests, doing)]
        self.rows += rows
        scored = [row.score for row in rows if row.score is not None]
        neutral = math.fsum(scored) / len(scored) if scored else 0.0
        scores = [neutral if row.score is None else row.score for row in rows]
        return self.batch_type(
            outputs=[row.task for row in rows],
            scores=scores,
            trajectories=[row.task for row in rows] if capture_traces else None,
        )

    def make_reflective_dataset(
        self, candidate: Mapping[str, str], batch: Any, components: Sequence[str]
    ) -> dict[str, list[dict[str, str]]]:
        """Our proposers read the rows themselves; GEPA only wants to see something."""
        return {name: [{"task": str(task)} for task in batch.outputs] for name in components}

    def propose(
        self, candidate: Mapping[str, str], dataset: Any, components: Sequence[str]
    ) -> dict[str, str]:
        parent = self._candidate(candidate)
        edits = self.server.edits(Ask(self.rounds, parent, tuple(self.rows)))
        self.rounds += 1
        self.known |= {edit.sha256: edit for edit in edits}
        have = {edit.sha256 for edit in parent.edits}
        fresh = sorted(
            (e for e in edits if e.sha256 not in have and not self._tells(e)),
            key=lambda e: -e.support,
        )
        kept = list(parent.edits)
        for edit in fresh[: self.settings.edits_per_step]:
            kept = [*(other for other in kept if not are_exclusive(other, edit)), edit]
        child = Candidate(tuple(kept))
        self.candidates.setdefault(child.key, child)
        self.parents.setdefault(child.key, parent.key)
        return {COMPONENT: "\n".join(edit.sha256 for edit in kept)}

    def _tells(self, edit: Edit) -> bool:
        """It shows the answer of a task that candidates are scored on."""
        return edit.is_demonstration and not self.held_out.isdisjoint(edit.sources)

    def found(self, validation: set[str]) -> Found:
        """The candidate with the best mean on the validation tasks, as GEPA itself chooses."""
        scores: dict[str, list[float]] = {}
        everything: dict[str, list[float]] = {}
        for row in self.rows:
            if row.score is not None:
                everything.setdefault(row.candidate, []).append(row.score)
                if row.task in validation:
                    scores.setdefault(row.candidate, []).append(row.score)
        whole = {k: math.fsum(v) / len(v) for k, v in scores.items() if len(v) >= len(validation)}
        base = whole.get(SEED.key, 0.0)
        better = sorted((k for k in whole if whole[k] > base), key=lambda k: (-whole[k], k))
        n_scored = sum(row.score is not None for row in self.rows)
        is_measured = n_scored >= self.task.min_coverage * len(self.rows)
        return Found(
            ranked=tuple(self.candidates[k] for k in better) if is_measured else (),
            reason=(
                f"gepa tried {len(self.candidates)} candidates"
                if is_measured
                else f"only {n_scored} of {len(self.rows)} rollouts on train tasks have a score"
            ),
            tried=tuple(
                Tried(
                    candidate,
                    self.parents[key],
                    "mutate" if self.parents[key] else "",
                    len(everything.get(key, [])),
                    _mean(everything.get(key, [])),
                    whole.get(key),
                )
                for key, candidate in self.candidates.items()
            ),
            is_measured=is_measured,
        )

    def _candidate(self, candidate: Mapping[str, str]) -> Candidate:
        return Candidate(tuple(self.known[key] for key in candidate[COMPONENT].split()))

    def _request(self, candidate: Candidate, task: TaskRef) -> Request:
        at = (candidate.key, task.key)
        replicate = self.replicates[at]
        self.replicates[at] += 1
        seed = derive(self.task.seed, Phase.RACE, task.key, replicate)
        return Request(Phase.RACE, candidate, task.key, replicate, seed)


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None
