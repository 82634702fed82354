"""The race engine: whole proposals against the incumbent, pair by pair.

For what cannot be split into edits that are tried together: rewrites of a text, another model. Each
round asks for proposals on the evidence so far; each new one runs against the incumbent on the same
tasks and seeds. It takes the lead when the betting test reaches 1/α (α = .2: provisional, the
certificate is what counts), and is given up when it looks futile: at least 10 pairs and the mean
plus one standard error not above .02. A new incumbent starts with fresh replicates: the lucky
scores that made it win are never used again.

Source of the stopping rules: the pilot of the strict race, constants unchanged.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from optimizer.edits import Edit, are_exclusive
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
from optimizer.seeds import derive
from optimizer.statistics import Verdict, e_process
from optimizer.tasks import TaskRef, passes

RACES_PER_ROUND = 2
"""Then the incumbent is watched again: proposals go stale."""
DRY_ROUNDS = 3
"""From this round on, one without a new proposal ends the search."""


@dataclass(frozen=True)
class RaceSettings:
    """Sizes; raises SearchInvalid."""

    evidence: int = 12
    """Rollouts of the incumbent before each round of proposals."""
    batch: int = 6
    """Pairs before the test is looked at again."""
    max_pairs: int = 60
    """Of one race."""
    alpha: float = 0.2
    futile_after: int = 10
    futile_below: float = 0.02
    max_rounds: int = 1_000

    def __post_init__(self) -> None:
        for name in ("evidence", "batch", "max_pairs", "futile_after"):
            if getattr(self, name) < 1:
                raise SearchInvalid(f"{name}: accepts at least 1, got {getattr(self, name)}")
        if not 0.0 < self.alpha < 1.0:
            raise SearchInvalid(f"alpha: accepts numbers between 0 and 1, got {self.alpha}")


@dataclass(frozen=True)
class Race:
    settings: RaceSettings = field(default_factory=RaceSettings)
    name: str = "race"

    def run(self, task: SearchTask, server: Server) -> Found:
        return _Races(self.settings, task, server).run()


@dataclass
class _Races:
    settings: RaceSettings
    task: SearchTask
    server: Server
    incumbent: Candidate = SEED
    lineage: dict[str, tuple[Candidate, str]] = field(default_factory=dict)
    """Key -> candidate and the key of its parent, in order of appearance."""
    buried: list[Buried] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    replicates: Counter[tuple[str, str]] = field(default_factory=Counter)
    raced: set[str] = field(default_factory=set)
    """Hashes of edits that had their race."""
    rounds: int = 0
    spent: int = 0

    def __post_init__(self) -> None:
        self.order = passes(self.task.train, self.task.seed, "train")
        self.lineage[SEED.key] = (SEED, "")

    def run(self) -> Found:
        why = "all its rollouts are spent"
        while self.rounds < self.settings.max_rounds and self._left() > 0:
            self._watch()
            edits = self._proposed()
            if not edits and self.rounds > 1 and self._left() < self.settings.evidence:
                break
            if not edits and self.rounds >= DRY_ROUNDS:
                why = "nobody proposes anything that was not tried"
                break
            for edit in edits:
                if self._left() < 2:
                    break
                self._race(edit)
        return self._found(why)

    # --- one round

    def _watch(self) -> None:
        n = min(self.settings.evidence, self._left())
        requests = [self._request(Phase.EVIDENCE, self.incumbent, t) for t in self._tasks(n)]
        self._ask(requests, "watching the incumbent")

    def _proposed(self) -> list[Edit]:
        """What was not raced yet, most support first, and no more than one round races."""
        ask = Ask(self.rounds, self.incumbent, tuple(self.rows), rewrite=True)
        self.rounds += 1
        new = [edit for edit in self.server.edits(ask) if edit.sha256 not in self.raced]
        return sorted(new, key=lambda edit: -edit.support)[:RACES_PER_ROUND]

    def _race(self, edit: Edit) -> None:
        self.raced.add(edit.sha256)
        base = self.incumbent
        kept = tuple(other for other in base.edits if not are_exclusive(other, edit))
        challenger = Candidate((*kept, edit))
        if not self._usable(challenger):
            self.buried.append(Buried(edit, "shows every train task, so none is left to try it on"))
            return
        self.lineage.setdefault(challenger.key, (challenger, base.key))
        differences: list[float | None] = []
        most = min(self.settings.max_pairs, self._left() // 2)
        while len(differences) < most:
            n = min(self.settings.batch, most - len(differences))
            differences += self._pairs(base, challenger, n)
            test = e_process(differences, alpha=self.settings.alpha, min_coverage=0.0)
            if test.verdict is Verdict.IMPROVED:
                self.incumbent = challenger
                return
            if test.has_crossed or self._is_futile(differences):
                break
        self.buried.append(_burial(edit, differences))

    def _pairs(self, base: Candidate, challenger: Candidate, n: int) -> list[float | None]:
        requests: list[Request] = []
        for task in self._tasks(n, challenger):
            # Both sides get the same replicate, one that neither has used.
            keys = [(side.key, task.key) for side in (base, challenger)]
            replicate = max(self.replicates[key] for key in keys)
            for side in (base, challenger):
                requests.append(self._request(Phase.RACE, side, task, replicate))
        rows = self._ask(requests, f"race {len(self.raced)}, {len(self.buried)} given up so far")
        return [
            None if a.score is None or b.score is None else b.score - a.score
            for a, b in zip(rows[::2], rows[1::2], strict=True)
        ]

    def _is_futile(self, differences: Sequence[float | None]) -> bool:
        valid = [d for d in differences if d is not None]
        if len(valid) < self.settings.futile_after:
            return False
        mean = math.fsum(valid) / len(valid)
        variance = math.fsum((d - mean) ** 2 for d in valid) / (len(valid) - 1)
        return mean + math.sqrt(variance / len(valid)) <= self.settings.futile_below

    # --- requests

    def _left(self) -> int:
        return self.task.rollouts - self.spent

    def _tasks(self, n: int, candidate: Candidate | None = None) -> list[TaskRef]:
        """The next tasks, without those whose answers stand in the candidate's demonstrations."""
        usable = self._usable(self.incumbent if candidate is None else candidate)
        return list(islice((task for task in self.order if task.key in usable), n))

    def _usable(self, candidate: Candidate) -> set[str]:
        shown = {key for e in candidate.edits if e.is_demonstration for key in e.sources}
        return {task.key for task in self.task.train} - shown

    def _request(
        self, phase: Phase, candidate: Candidate, task: TaskRef, replicate: int | None = None
    ) -> Request:
        at = (candidate.key, task.key)
        if replicate is None:
            replicate = self.replicates[at]
        self.replicates[at] = replicate + 1
        self.spent += 1
        seed = derive(self.task.seed, phase, task.key, replicate)
        return Request(phase, candidate, task.key, replicate, seed)

    def _ask(self, requests: Sequence[Request], text: str) -> list[Row]:
        phase = requests[0].phase
        doing = Doing(phase, len(self.rows), self.task.rollouts, text)
        rows = self.server.rollouts(requests, doing)
        self.rows += [replace(row, phase=phase) for row in rows]
        return rows

    # --- the result

    def _found(self, why: str) -> Found:
        scored = sum(row.score is not None for row in self.rows)
        is_measured = scored >= self.task.min_coverage * len(self.rows)
        has_won = self.incumbent.key != SEED.key
        if not is_measured:
            why = f"only {scored} of {len(self.rows)} rollouts on train tasks have a score"
        elif not has_won:
            why = f"no proposal beat the seed in its race; {why}"
        return Found(
            ranked=(self.incumbent,) if has_won and is_measured else (),
            reason=why,
            tried=tuple(self._tried()),
            buried=tuple(self.buried),
            is_measured=is_measured,
        )

    def _tried(self) -> list[Tried]:
        scores: dict[str, list[float]] = {}
        for row in self.rows:
            if row.score is not None:
                scores.setdefault(row.candidate, []).append(row.score)
        found = []
        for key, (candidate, parent) in self.lineage.items():
            values = scores.get(key, [])
            mean = math.fsum(values) / len(values) if values else None
            relation = _relation(candidate) if parent else ""
            found.append(Tried(candidate, parent, relation, len(values), mean, mean))
        return found


def _relation(candidate: Candidate) -> str:
    last = candidate.edits[-1]
    is_model = last.component == "harness.yaml" and last.anchor == "model"
    return "model swap" if is_model else "mutate"


def _burial(edit: Edit, differences: Sequence[float | None]) -> Buried:
    valid = [d for d in differences if d is not None]
    mean = math.fsum(valid) / len(valid) if valid else 0.0
    reason = "lost its race" if mean < 0 else "did not win its race"
    return Buried(edit, reason, {"mean": mean, "pairs": float(len(valid))})
