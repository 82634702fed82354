"""Few-shot search: random sets of demonstrations, halved until one is left.

The sets have one to `max_demonstrations` members and are drawn by hash, the first one is empty and
the second holds the demonstrations with most support. All run on the same tasks; the worse half is
dropped, the rest runs on further tasks, and so on. A set's score is the mean over all its rollouts.

Sources: DSPy's BootstrapFewShotWithRandomSearch for the sets; Karnin et al., "Almost Optimal
Exploration in Multi-Armed Bandits", 2013, for sequential halving.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice

from optimizer.edits import Edit
from optimizer.engines.contract import (
    SEED,
    Ask,
    Buried,
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
from optimizer.seeds import derive, generator, shuffled
from optimizer.tasks import TaskRef, passes


@dataclass(frozen=True)
class BootstrapSettings:
    """Sizes; raises SearchInvalid."""

    evidence: int = 12
    """Rollouts of the seed before anything is proposed."""
    sets: int = 16
    max_demonstrations: int = 4

    def __post_init__(self) -> None:
        for name in ("evidence", "sets", "max_demonstrations"):
            if getattr(self, name) < 1:
                raise SearchInvalid(f"{name}: accepts at least 1, got {getattr(self, name)}")


@dataclass(frozen=True)
class Bootstrap:
    settings: BootstrapSettings = field(default_factory=BootstrapSettings)
    name: str = "bootstrap"

    def run(self, task: SearchTask, server: Server) -> Found:
        return _Halving(self.settings, task, server).run()


@dataclass
class _Halving:
    settings: BootstrapSettings
    task: SearchTask
    server: Server
    rows: list[Row] = field(default_factory=list)
    scores: dict[str, list[float]] = field(default_factory=dict)
    replicates: Counter[tuple[str, str]] = field(default_factory=Counter)

    def run(self) -> Found:
        n = min(self.settings.evidence, self.task.rollouts)
        order = passes(self.task.train, self.task.seed, "train")
        self._run([SEED], list(islice(order, n)), Phase.EVIDENCE, "watching the seed harness")
        known = self.server.edits(Ask(0, SEED, tuple(self.rows)))
        proposed = [edit for edit in known if edit.is_demonstration]
        if not proposed:
            return self._found([], [], "no demonstration was proposed")
        edits, usable = self._leaving_tasks(proposed)
        if not edits:
            return self._found([], [], "no train task is left to try demonstrations on")
        sets = self._sets(edits)
        left = self._halve(sets, usable)
        base = self._mean(SEED) or 0.0
        ranked = [c for c in left if c.edits and (self._mean(c) or 0.0) > base]
        reason = "its rollouts are spent" if ranked else "no set of demonstrations beats the seed"
        return self._found(ranked, sets, reason)

    def _leaving_tasks(self, proposed: list[Edit]) -> tuple[list[Edit], list[TaskRef]]:
        """The first demonstrations of which none shows the answer of half of the train tasks, and
        those tasks.
        """
        keys = {task.key for task in self.task.train}
        kept: list[Edit] = []
        shown: set[str] = set()
        for edit in proposed:
            grown = shown | (keys & set(edit.sources))
            if 2 * len(grown) <= len(keys):
                kept.append(edit)
                shown = grown
        return kept, [task for task in self.task.train if task.key not in shown]

    def _sets(self, edits: list[Edit]) -> list[Candidate]:
        """None twice; fewer than asked for where there are not so many subsets."""
        most = min(self.settings.max_demonstrations, len(edits))
        best = sorted(edits, key=lambda edit: -edit.support)[:most]
        found = {SEED.key: SEED}
        for turn in range(8 * self.settings.sets):
            if len(found) >= self.settings.sets:
                break
            if turn == 0:
                chosen = best
            else:
                size = generator(self.task.seed, "size", turn).randint(1, most)
                chosen = shuffled(edits, self.task.seed, "set", turn)[:size]
            candidate = Candidate(tuple(edit for edit in edits if edit in chosen))
            found.setdefault(candidate.key, candidate)
        return list(found.values())

    def _halve(self, sets: list[Candidate], usable: list[TaskRef]) -> list[Candidate]:
        """The last two, the better one first."""
        order = passes(usable, self.task.seed, "halving")
        rounds = max(1, math.ceil(math.log2(len(sets))))
        left = list(sets)
        for number in range(rounds):
            share = (self.task.rollouts - len(self.rows)) // (rounds - number)
            n = share // len(left)
            if n < 1:
                break
            text = f"{len(left)} sets of demonstrations on {n} tasks"
            self._run(left, list(islice(order, n)), Phase.RACE, text)
            left.sort(key=lambda c: (-(self._mean(c) or 0.0), len(c.edits), c.key))
            left = left[: max(2, math.ceil(len(left) / 2))]
        return left

    def _run(
        self, candidates: list[Candidate], tasks: list[TaskRef], phase: Phase, text: str
    ) -> None:
        requests = [self._request(phase, c, task) for task in tasks for c in candidates]
        doing = Doing(phase, len(self.rows), self.task.rollouts, text)
        for row in self.server.rollouts(requests, doing):
            self.rows.append(replace(row, phase=phase))
            if row.score is not None:
                self.scores.setdefault(row.candidate, []).append(row.score)

    def _request(self, phase: Phase, candidate: Candidate, task: TaskRef) -> Request:
        at = (candidate.key, task.key)
        replicate = self.replicates[at]
        self.replicates[at] += 1
        seed = derive(self.task.seed, phase, task.key, replicate)
        return Request(phase, candidate, task.key, replicate, seed)

    def _mean(self, candidate: Candidate) -> float | None:
        values = self.scores.get(candidate.key, [])
        return math.fsum(values) / len(values) if values else None

    def _found(self, ranked: list[Candidate], sets: list[Candidate], reason: str) -> Found:
        scored = sum(row.score is not None for row in self.rows)
        is_measured = scored >= self.task.min_coverage * len(self.rows)
        if not is_measured:
            reason = f"only {scored} of {len(self.rows)} rollouts on train tasks have a score"
            ranked = []
        winner = {edit.sha256 for edit in ranked[0].edits} if ranked else set()
        edits = {edit.sha256: edit for c in sets for edit in c.edits}
        return Found(
            ranked=tuple(ranked),
            reason=reason,
            tried=tuple(
                Tried(
                    c,
                    SEED.key if c.edits else "",
                    "mutate" if c.edits else "",
                    len(self.scores.get(c.key, [])),
                    self._mean(c),
                    self._mean(c),
                )
                for c in (sets or [SEED])
            ),
            buried=tuple(
                Buried(edit, "not in the best set")
                for key, edit in edits.items()
                if key not in winner
            ),
            is_measured=is_measured,
        )
