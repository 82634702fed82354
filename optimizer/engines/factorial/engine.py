"""The factorial engine: estimates the effect of each edit from randomised inclusion.

    evidence   the seed alone on some train tasks; proposers answer with edits
    screen     waves of blocks, each a subset of the edits (a bundle) on a few tasks; after a wave
               the effects are estimated anew, and the next bundles are drawn from the posterior
               (Thompson sampling), so that rollouts go where a good bundle may be
    race       the most promising bundles side by side on the same tasks; what the linear model
               cannot see (an order, a triple) shows here

A block of one task draws a bundle for every rollout and learns most; larger blocks keep the prompt
caches of a model server warm. Tasks that an edit was made from are not used where that edit is on
trial: their answers are in the prompt.

What comes out guides the search and explains the bundle. What is claimed is the certificate.

The model is `optimizer.engines.factorial.pool`, its constants those of the pilot; Thompson sampling
as in Russo et al., "A Tutorial on Thompson Sampling", 2018.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from optimizer.edits import Edit
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
)
from optimizer.engines.factorial.planning import (
    Observation,
    Sizes,
    active,
    fitted,
    next_wave,
    with_leaders,
)
from optimizer.engines.factorial.pool import NOISE_VARIANCE, Bundle, Pool
from optimizer.engines.factorial.report import burial, estimated, tried
from optimizer.errors import SearchInvalid
from optimizer.gaussian import Posterior
from optimizer.seeds import derive
from optimizer.tasks import TaskRef, passes

MODEL_ERROR_VARIANCE = 0.05**2
"""How far the linear model may be off for a bundle, added to its variance when a race is decided.
"""


@dataclass(frozen=True)
class FactorialSettings:
    """Sizes; raises SearchInvalid."""

    evidence: int = 12
    """Rollouts of the seed before anything is proposed."""
    watch: tuple[str, ...] = ()
    """Keys of the tasks that these are on; empty: the first of the passes over all."""
    wave_blocks: int = 12
    """Bundles that are planned together; after each wave the effects are estimated anew."""
    tasks_per_block: int = 1
    propose_every: int = 1
    """Waves between two rounds of proposals."""
    max_rounds: int = 1_000
    entry_support: int = 2
    """Distinct tasks behind an edit before it is tried …"""
    least: int = 3
    """… unless fewer than so many are on trial: then those with most support enter without."""
    early_share: float = 0.15
    """Of the search's rollouts, in which every other bundle is small."""
    active: int = 14
    """Edits on trial at a time."""
    leaders: int = 6
    """Edits whose pairs are estimated."""
    max_demonstrations: int = 4
    """In one bundle; each costs tokens in every rollout."""
    keep: float = 0.25
    """An edit joins the bundle above so many standard deviations."""
    race_candidates: int = 3
    race_share: float = 0.1
    """Of the search's rollouts."""

    def __post_init__(self) -> None:
        for name in ("evidence", "wave_blocks", "tasks_per_block", "propose_every", "active"):
            if getattr(self, name) < 1:
                raise SearchInvalid(f"{name}: accepts at least 1, got {getattr(self, name)}")
        if not 0.0 <= self.race_share < 1.0:
            raise SearchInvalid(f"race_share: accepts 0 to below 1, got {self.race_share}")


@dataclass(frozen=True)
class Factorial:
    settings: FactorialSettings = field(default_factory=FactorialSettings)
    name: str = "factorial"

    def run(self, task: SearchTask, server: Server) -> Found:
        return _Screening(self.settings, task, server).run()


@dataclass
class _Screening:
    """One run from its start."""

    settings: FactorialSettings
    task: SearchTask
    server: Server
    edits: list[Edit] = field(default_factory=list)
    """The pool, in order of entry; positions never change."""
    rows: list[Row] = field(default_factory=list)
    observations: list[Observation] = field(default_factory=list)
    replicates: Counter[tuple[str, str]] = field(default_factory=Counter)
    tried: list[Bundle] = field(default_factory=list)
    raced: dict[Bundle, float] = field(default_factory=dict)
    """What prediction and race together say of a bundle."""
    rounds: int = 0
    spent: int = 0

    def __post_init__(self) -> None:
        self.order: Iterator[TaskRef] = passes(self.task.train, self.task.seed, "train")
        self.race_rollouts = int(self.settings.race_share * self.task.rollouts)

    def run(self) -> Found:
        self._evidence()
        self._screen()
        if (missing := self._coverage_problem()) is not None:
            return self._found((), missing, is_measured=False)
        if not self.edits:
            return self._found((), "nothing was proposed that could be tried")
        ranked = self._race()
        if (missing := self._coverage_problem()) is not None:
            return self._found((), missing, is_measured=False)
        if not ranked:
            return self._found((), "no bundle promises more than the seed")
        return self._found(tuple(ranked), f"{self.spent} rollouts on train tasks are spent")

    # --- evidence and proposals

    def _evidence(self) -> None:
        n = min(self.settings.evidence, self._left_to_screen())
        chosen = [task for task in self.task.train if task.key in self.settings.watch]
        tasks = chosen[:n] if chosen else self._tasks(n, ())
        n = len(tasks)
        requests = [self._request(Phase.EVIDENCE, (), task) for task in tasks]
        self._learn([()] * n, requests, n, "watching the seed harness")
        self._propose()

    def _propose(self) -> None:
        if self.rounds >= self.settings.max_rounds:
            return
        asked = self.server.edits(Ask(self.rounds, SEED, tuple(self.rows)))
        known = [edit for edit in asked if len(self._shown_by(edit)) < len(self.task.train)]
        self.rounds += 1
        have = {edit.sha256: i for i, edit in enumerate(self.edits)}
        waiting = []
        for edit in known:
            at = have.get(edit.sha256)
            if at is not None:
                self.edits[at] = edit  # its support may have grown
            elif edit.support >= self.settings.entry_support:
                self.edits.append(edit)
            else:
                waiting.append(edit)
        # Proposers that never say the same thing twice would otherwise starve the screen.
        lacking = self.settings.least - self._on_trial()
        waiting.sort(key=lambda edit: -edit.support)
        self.edits += waiting[: max(0, lacking)]

    def _on_trial(self) -> int:
        if not self.edits:
            return 0
        return len(active(self._pool(), tuple(self.observations), self.settings.active))

    # --- screen

    def _screen(self) -> None:
        waves = 0
        # A rest that fills no block is left: it would be a run of its own for next to nothing.
        while self._left_to_screen() >= self.settings.tasks_per_block:
            if waves and waves % self.settings.propose_every == 0:
                self._propose()
            bundles = self._wave()
            bundles = bundles[: max(1, self._left_to_screen() // self.settings.tasks_per_block)]
            requests: list[Request] = []
            whose: list[Bundle] = []
            for bundle in bundles:
                n = min(self.settings.tasks_per_block, self._left_to_screen())
                for task in self._tasks(n, bundle):
                    requests.append(self._request(Phase.SCREEN, bundle, task))
                    whose.append(bundle)
            waves += 1
            planned = self.task.rollouts - self.race_rollouts - self.settings.evidence
            self._learn(whose, requests, planned, f"trying {len(self.edits)} edits, wave {waves}")

    def _wave(self) -> list[Bundle]:
        if not self.edits:
            return [()] * self.settings.wave_blocks
        # Blocks of several tasks are worth more when they differ; single rollouts may repeat.
        taken = tuple(self.tried) if self.settings.tasks_per_block > 1 else ()
        is_early = self.spent < self.settings.early_share * self.task.rollouts
        sizes = Sizes(self.settings.wave_blocks, self.settings.active, is_early)
        seed = derive(self.task.seed, "wave", self.spent)
        return list(next_wave(self._pool(), tuple(self.observations), taken, sizes, seed))

    def _pool(self) -> Pool:
        plain = Pool(tuple(self.edits), (), self._max_demonstrations())
        return with_leaders(plain, tuple(self.observations), self.settings.leaders)

    def _max_demonstrations(self) -> int:
        """So few that each bundle leaves a train task whose answer is not in the prompt."""
        shown = sorted((len(self._shown_by(edit)) for edit in self.edits), reverse=True)
        most = self.settings.max_demonstrations
        while most > 1 and sum(shown[:most]) >= len(self.task.train):
            most -= 1
        return most

    def _shown_by(self, edit: Edit) -> set[str]:
        """Train tasks whose answers stand in it."""
        if not _is_copy(edit):
            return set()
        return {task.key for task in self.task.train} & set(edit.sources)

    def _learn(
        self, whose: Sequence[Bundle], requests: Sequence[Request], planned: int, text: str
    ) -> None:
        phase = requests[0].phase if requests else Phase.SCREEN
        done = sum(row.phase == phase for row in self.rows)
        rows = self.server.rollouts(requests, Doing(phase, done, planned, text))
        for bundle, request, row in zip(whose, requests, rows, strict=True):
            self.rows.append(replace(row, phase=request.phase))
            if row.score is not None:
                self.observations.append(Observation(bundle, row.task, row.score))
        self.tried += [bundle for bundle in dict.fromkeys(whose) if bundle not in self.tried]

    # --- race

    def _race(self) -> list[Candidate]:
        """Candidates that promise more than the seed, best first."""
        pool = self._pool()
        known = fitted(pool, tuple(self.observations))
        runners = [b for b in self._runners(pool, known) if b][: self.settings.race_candidates]
        per_arm = self.race_rollouts // len(runners) if len(runners) > 1 else 0
        predicted = {b: known.sum_of(pool.columns(b)) for b in runners}
        lanes: dict[Bundle, list[Request]] = {b: [] for b in runners}
        together = tuple(sorted({i for b in runners for i in b}))
        shown = {key for i in together for key in self._shown_by(self.edits[i])}
        # Where their demonstrations leave no task to race on, the model alone ranks them.
        if per_arm and len(shown) < len(self.task.train):
            for task in self._tasks(per_arm, together):
                for bundle in runners:
                    lanes[bundle].append(self._request(Phase.RACE, bundle, task))
            whose = [b for b in runners for _ in lanes[b]]
            requests = [r for b in runners for r in lanes[b]]
            self._learn(
                whose, requests, len(requests), f"racing {len(runners)} bundles on {per_arm} tasks"
            )
        by_key = {row.key: row.score for row in self.rows}
        for bundle in runners:
            scores = [s for r in lanes[bundle] if (s := by_key.get(r.key)) is not None]
            self.raced[bundle] = _settled(*predicted[bundle], scores)
        base = fitted(self._pool(), tuple(self.observations)).sum_of((0,))[0]
        ranked = sorted(
            (b for b in runners if self.raced[b] > base),
            key=lambda b: (-self.raced[b], len(b), b),
        )
        return [self._candidate(b) for b in ranked]

    def _runners(self, pool: Pool, known: Posterior) -> list[Bundle]:
        """Bundles worth racing, none twice, the model's favourite first."""
        cautious = list(known.mean)
        for i in range(len(pool.edits)):
            cautious[1 + i] -= self.settings.keep * math.sqrt(known.covariance[1 + i][1 + i])
        favourite = pool.best(cautious)
        found = [favourite]
        if (plainer := _without_weakest(pool, known, favourite)) is not None:
            # Whether the least certain edit belongs there is what a race should settle.
            found.append(plainer)
        additive = Pool(pool.edits, (), pool.max_demonstrations)
        simple = fitted(additive, tuple(self.observations))
        theta = list(simple.mean)
        for i in range(len(pool.edits)):
            theta[1 + i] -= self.settings.keep * math.sqrt(simple.covariance[1 + i][1 + i])
        found.append(additive.best(theta))
        ranked = sorted(self.tried, key=lambda b: (-known.sum_of(pool.columns(b))[0], len(b), b))
        return list(dict.fromkeys([*found, *ranked]))

    # --- requests

    def _left_to_screen(self) -> int:
        return self.task.rollouts - self.race_rollouts - self.spent

    def _tasks(self, n: int, bundle: Bundle) -> list[TaskRef]:
        """The next tasks, without those that the bundle's edits were made from."""
        sources = {
            source for i in bundle if _is_copy(self.edits[i]) for source in self.edits[i].sources
        }
        if sources.issuperset(task.key for task in self.task.train):
            raise SearchInvalid("train: needs a task that no edit of a bundle was made from")
        return list(islice((task for task in self.order if task.key not in sources), n))

    def _request(self, phase: Phase, bundle: Bundle, task: TaskRef) -> Request:
        candidate = self._candidate(bundle)
        replicate = self.replicates[candidate.key, task.key]
        self.replicates[candidate.key, task.key] = replicate + 1
        self.spent += 1
        seed = derive(self.task.seed, phase, task.key, replicate)
        return Request(phase, candidate, task.key, replicate, seed)

    def _candidate(self, bundle: Bundle) -> Candidate:
        return Candidate(tuple(self.edits[i] for i in bundle))

    # --- the result

    def _coverage_problem(self) -> str | None:
        scored = sum(row.score is not None for row in self.rows)
        if scored >= self.task.min_coverage * len(self.rows):
            return None
        return (
            f"only {scored} of {len(self.rows)} rollouts on train tasks have a score; "
            f"{self.task.min_coverage:.0%} are needed to rank anything"
        )

    def _found(
        self, ranked: tuple[Candidate, ...], reason: str, *, is_measured: bool = True
    ) -> Found:
        pool = self._pool()
        known = fitted(pool, tuple(self.observations))
        estimates = estimated(pool, known, self.observations)
        bundles = [*self.tried, *self.raced]
        winner = {edit.sha256 for edit in ranked[0].edits} if ranked else set()
        return Found(
            ranked=ranked,
            reason=reason,
            estimates=tuple(estimates),
            tried=tuple(tried(pool, known, self.observations, bundles, self.raced)),
            buried=tuple(burial(e) for e in estimates if e.edit.sha256 not in winner),
            is_measured=is_measured,
        )


def _settled(mean: float, sd: float, scores: Sequence[float]) -> float:
    """The mean score by prediction and race together."""
    trust = 1.0 / (sd**2 + MODEL_ERROR_VARIANCE)
    total = math.fsum(scores) / NOISE_VARIANCE
    return (mean * trust + total) / (trust + len(scores) / NOISE_VARIANCE)


def _without_weakest(pool: Pool, known: Posterior, bundle: Bundle) -> Bundle | None:
    """The bundle less its edit (demonstrations aside) with the lowest mean; None if it has none."""
    others = [i for i in bundle if i not in pool.demonstrations]
    if not others:
        return None
    weakest = min(others, key=lambda i: known.mean[1 + i])
    return tuple(i for i in bundle if i != weakest)


def _is_copy(edit: Edit) -> bool:
    """It shows a task's answer; a lesson from a task does not."""
    return edit.is_demonstration
