"""The search as a pure function: given the rollouts that exist, what should run next?

    screen    blocks of bundles on train tasks; effects by the factorial model (`optimizer.screen`)
    race      the most promising bundles side by side on the same train tasks
    certify   fresh pairs of the winner and the seed on select tasks, until the betting test of
              `optimizer.statistics.betting` crosses or the pairs are spent

`next_action(config, rows)` looks at nothing else. All choices come from hashes of the seed and of
what they are for, so a resumed search asks exactly for the rollouts without a row and ends as an
uninterrupted one. Rows may come in any order; rows that the search never asked for are refused.

Tasks that an edit was made from are not used in the search: their answers are in the prompt. The
select tasks are untouched until certification, and nothing that made a bundle win is used again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import islice

from optimizer.edits import Edit
from optimizer.errors import SearchInvalid
from optimizer.guards import Change, Guard, guards
from optimizer.screen import (
    NOISE_VARIANCE,
    Bundle,
    Effect,
    Observation,
    Pool,
    Scored,
    assemble,
    effects,
    first_wave,
    next_wave,
    posterior,
)
from optimizer.seeds import derive
from optimizer.statistics import (
    EProcess,
    Pair,
    PairedResult,
    Verdict,
    alpha_share,
    compare,
    e_process,
)
from optimizer.tasks import TaskRef, passes

MODEL_ERROR_VARIANCE = 0.05**2
"""How far the linear model may be off for a bundle, added to its variance when a race is
decided.
"""


class Phase(StrEnum):
    SCREEN = "screen"
    RACE = "race"
    CERTIFY = "certify"


@dataclass(frozen=True)
class SearchConfig:
    """All that a search depends on, besides the rows. Raises SearchInvalid if it cannot work."""

    edits: tuple[Edit, ...]
    train: tuple[TaskRef, ...]
    select: tuple[TaskRef, ...]
    seed: int = 0
    blocks: int = 12
    """Bundles in the screen, the empty one among them."""
    wave_blocks: int = 4
    """Blocks that are planned together; after each wave the effects are estimated anew."""
    tasks_per_block: int = 6
    max_demonstrations: int = 4
    """In one bundle; each costs tokens in every rollout."""
    race_candidates: int = 3
    race_tasks: int = 16
    certify_batch_pairs: int = 12
    """Pairs that are run before the test is looked at again."""
    certify_max_pairs: int = 60
    """All certificates together."""
    alpha: float = 0.05
    max_certificates: int = 1
    """With more than one, the j-th is tested at alpha·6/(π²·j²), the first included."""
    min_coverage: float = 0.8
    """Share of rollouts with a score; below it nothing is ranked and nothing is claimed."""

    def __post_init__(self) -> None:
        if not self.edits:
            raise SearchInvalid("edits: a search needs at least one")
        if len({edit.sha256 for edit in self.edits}) < len(self.edits):
            raise SearchInvalid("edits: the same edit is given twice")
        for name in ("blocks", "wave_blocks", "tasks_per_block", "race_candidates", "race_tasks"):
            if getattr(self, name) < 1:
                raise SearchInvalid(f"{name}: accepts at least 1, got {getattr(self, name)}")
        for name in ("certify_batch_pairs", "certify_max_pairs", "max_certificates"):
            if getattr(self, name) < 1:
                raise SearchInvalid(f"{name}: accepts at least 1, got {getattr(self, name)}")
        if not 0.0 < self.alpha < 1.0:
            raise SearchInvalid(f"alpha: accepts numbers between 0 and 1, got {self.alpha}")
        if {task.key for task in self.train} & {task.key for task in self.select}:
            raise SearchInvalid("select: a task is in train too")
        if not self.screened_tasks or not self.select:
            raise SearchInvalid("train and select: each needs a task that no edit was made from")

    @cached_property
    def pool(self) -> Pool:
        return Pool(self.edits, self.max_demonstrations)

    @cached_property
    def screened_tasks(self) -> tuple[TaskRef, ...]:
        sources = {source for edit in self.edits for source in edit.sources}
        return tuple(task for task in self.train if task.key not in sources)

    @property
    def max_rollouts(self) -> int:
        """No search asks for more."""
        return (
            self.blocks * self.tasks_per_block
            + self.race_candidates * self.race_tasks
            + 2 * self.certify_max_pairs
        )

    def candidate(self, bundle: Bundle) -> str:
        return candidate_key(self.edits[i].sha256 for i in bundle)

    def alpha_of(self, certificate: int) -> float:
        """Of the j-th certificate, counted from 1."""
        return self.alpha if self.max_certificates == 1 else alpha_share(certificate, self.alpha)


def candidate_key(edit_hashes: Iterable[str]) -> str:
    """Names the harness that a set of edits makes of the seed; the seed itself is the empty set."""
    return hashlib.sha256(json.dumps(sorted(edit_hashes)).encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """One finished rollout. Without a score (errored, not applicable) `score` is None."""

    candidate: str
    task: str
    replicate: int
    score: float | None
    criteria: Mapping[str, float] = field(default_factory=dict)
    """Values of the criteria that were scored, for the guards."""


@dataclass(frozen=True)
class Request:
    """One rollout to run; unique by candidate, task and replicate."""

    phase: Phase
    bundle: Bundle
    candidate: str
    task: str
    replicate: int
    seed: int
    """For sampling; equal for both sides of a pair."""

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.candidate, self.task, self.replicate)


Lane = tuple[TaskRef, Request, Request]
"""One pair to certify on: the task, the seed's rollout and the candidate's."""


@dataclass(frozen=True)
class Progress:
    phase: Phase
    done: int
    """Rollouts of this phase that have a row."""
    planned: int
    """Rollouts of this phase at most."""
    doing: str


@dataclass(frozen=True)
class Run:
    """These rollouts are missing; run them all, in any order, then ask again."""

    requests: tuple[Request, ...]
    progress: Progress


@dataclass(frozen=True)
class Arm:
    """A bundle in the race."""

    bundle: Bundle
    candidate: str
    predicted: float
    """By the model, before the race."""
    n: int
    """Scores of the race."""
    mean: float | None
    estimate: float
    """Prediction and race together; what decides."""


@dataclass(frozen=True)
class Certificate:
    number: int
    bundle: Bundle
    candidate: str
    test: EProcess
    comparison: PairedResult
    """Of all pairs that were run, also those behind the crossing; describes, does not decide."""
    guards: tuple[Guard, ...]

    @property
    def breached(self) -> tuple[str, ...]:
        return tuple(guard.name for guard in self.guards if guard.is_breached)

    @property
    def is_promotable(self) -> bool:
        return self.test.verdict is Verdict.IMPROVED and not self.breached


@dataclass(frozen=True)
class Finished:
    verdict: Verdict
    reason: str
    bundle: Bundle
    """What the verdict is about; the best guess, not certified, where it is indecisive."""
    candidate: str
    effects: tuple[Effect, ...]
    arms: tuple[Arm, ...]
    certificates: tuple[Certificate, ...]

    @property
    def is_promotable(self) -> bool:
        return any(c.is_promotable and c.candidate == self.candidate for c in self.certificates)

    @property
    def shipped(self) -> Bundle:
        """What to go on with: the bundle, or the seed (empty) where the evidence is against it.

        An indecisive bundle is shipped, as not certified, if its own fresh pairs favour it.
        """
        for certificate in self.certificates:
            if certificate.candidate != self.candidate:
                continue
            mean = certificate.comparison.mean
            if certificate.is_promotable:
                return self.bundle
            if self.verdict is Verdict.INDECISIVE and not certificate.breached:
                return self.bundle if mean is not None and mean > 0 else ()
        return ()


Action = Run | Finished


def next_action(config: SearchConfig, rows: Iterable[Row]) -> Action:
    """What to do next. Raises SearchInvalid for rows that do not belong to this search."""
    return _Course(config, rows).next()


class _Missing(Exception):
    """Control flow inside this module: the course ends here until these rollouts exist."""

    def __init__(self, requests: Sequence[Request], progress: Progress) -> None:
        super().__init__(requests, progress)
        self.requests, self.progress = tuple(requests), progress


class _Course:
    """The search from its start, as far as the rows carry it."""

    def __init__(self, config: SearchConfig, rows: Iterable[Row]) -> None:
        self.config = config
        self.rows: dict[tuple[str, str, int], Row] = {}
        for row in rows:
            if (row.candidate, row.task, row.replicate) in self.rows:
                raise SearchInvalid(f"two rows of {row.candidate[:12]} on {row.task}")
            self.rows[row.candidate, row.task, row.replicate] = row
        self.asked: list[Request] = []
        self.replicates: Counter[tuple[str, str]] = Counter()
        self.observations: list[Observation] = []
        self.train = passes(config.screened_tasks, config.seed, "train")
        self.select = passes(config.select, config.seed, "select")

    def next(self) -> Action:
        try:
            result = self._run()
        except _Missing as missing:
            self._check_rows()
            return Run(missing.requests, missing.progress)
        self._check_rows()
        return result

    def _run(self) -> Finished:
        self._screen()
        if (missing := self._coverage_problem(Phase.SCREEN)) is not None:
            return self._finished(Verdict.INDECISIVE, missing, ())
        arms = self._race()
        if (missing := self._coverage_problem(Phase.RACE)) is not None:
            return self._finished(Verdict.INDECISIVE, missing, arms[0].bundle, arms)
        return self._certify(arms)

    # --- screen

    def _screen(self) -> None:
        config, pool = self.config, self.config.pool
        blocks: list[Bundle] = []
        while len(blocks) < config.blocks:
            n = min(config.wave_blocks, config.blocks - len(blocks))
            seed = (config.seed, "wave", len(blocks))
            if blocks:
                known = posterior(pool, self.observations)
                wave = next_wave(pool, known, n, blocks, *seed)
            else:
                wave = first_wave(pool, n, *seed)
            blocks += wave
            requests = [
                self._request(Phase.SCREEN, bundle, task)
                for bundle in wave
                for task in islice(self.train, config.tasks_per_block)
            ]
            doing = f"trying {len(config.edits)} edits, {len(blocks)} of {config.blocks} blocks"
            self._learn(requests, config.blocks * config.tasks_per_block, doing)

    def _learn(self, requests: Sequence[Request], planned: int, doing: str) -> None:
        for request, row in zip(requests, self._results(requests, planned, doing), strict=True):
            if row.score is not None:
                self.observations.append(Observation(request.bundle, row.task, row.score))

    # --- race

    def _race(self) -> list[Arm]:
        """Arms, best first."""
        config, pool = self.config, self.config.pool
        known = posterior(pool, self.observations)
        tried = [request.bundle for request in self.asked]
        ranked = assemble(pool, known, tried, config.race_candidates + 1)
        runners = [scored for scored in ranked if scored.bundle][: config.race_candidates]
        tasks = list(islice(self.train, config.race_tasks))
        lanes = [
            [self._request(Phase.RACE, runner.bundle, task) for task in tasks] for runner in runners
        ]
        doing = f"racing {len(runners)} bundles on {len(tasks)} tasks"
        self._learn([r for lane in lanes for r in lane], len(runners) * len(tasks), doing)
        arms = [self._arm(runner, lane) for runner, lane in zip(runners, lanes, strict=True)]
        return sorted(arms, key=lambda arm: (-arm.estimate, len(arm.bundle), arm.bundle))

    def _arm(self, runner: Scored, lane: Sequence[Request]) -> Arm:
        scores = [s for s in (self.rows[request.key].score for request in lane) if s is not None]
        trust = 1.0 / (runner.sd**2 + MODEL_ERROR_VARIANCE)
        total = math.fsum(scores) / NOISE_VARIANCE
        return Arm(
            bundle=runner.bundle,
            candidate=self.config.candidate(runner.bundle),
            predicted=runner.mean,
            n=len(scores),
            mean=math.fsum(scores) / len(scores) if scores else None,
            estimate=(runner.mean * trust + total) / (trust + len(scores) / NOISE_VARIANCE),
        )

    # --- certification

    def _certify(self, arms: Sequence[Arm]) -> Finished:
        config = self.config
        base, _ = posterior(config.pool, self.observations).sum_of(config.pool.columns(()))
        worth = [arm for arm in arms if arm.estimate > base]
        if not worth:
            reason = "no bundle promises more than the seed; certification was not tried"
            return self._finished(Verdict.INDECISIVE, reason, (), arms)
        certificates: list[Certificate] = []
        left = config.certify_max_pairs
        for number, arm in enumerate(worth[: config.max_certificates], start=1):
            certificate = self._certificate(number, arm, left)
            certificates.append(certificate)
            left -= certificate.comparison.scheduled
            if certificate.test.verdict is Verdict.IMPROVED or left < 1:
                break
        last = certificates[-1]
        chosen = last if last.test.verdict is Verdict.IMPROVED else certificates[0]
        return self._finished(
            chosen.test.verdict, _sentence(chosen), chosen.bundle, arms, certificates
        )

    def _certificate(self, number: int, arm: Arm, most: int) -> Certificate:
        config = self.config
        lanes: list[Lane] = []
        while True:
            batch = min(config.certify_batch_pairs, most - len(lanes))
            lanes += [self._pair(arm.bundle, task) for task in islice(self.select, batch)]
            requests = [request for _, *both in lanes for request in both]
            doing = f"certificate {number}: {len(lanes)} of at most {most} pairs"
            self._results(requests, 2 * config.certify_max_pairs, doing)
            pairs = [self._scores(*lane) for lane in lanes]
            test = e_process(
                [_difference(pair) for pair in pairs],
                alpha=config.alpha_of(number),
                min_coverage=config.min_coverage,
            )
            if test.has_crossed or len(lanes) >= most:
                break
        return Certificate(
            number=number,
            bundle=arm.bundle,
            candidate=arm.candidate,
            test=test,
            comparison=compare(pairs),
            guards=tuple(guards(self._changes(lanes))),
        )

    def _pair(self, bundle: Bundle, task: TaskRef) -> Lane:
        # Both sides get the same replicate, one that neither has used: pairs are fresh.
        base, candidate = self.config.candidate(()), self.config.candidate(bundle)
        replicate = max(self.replicates[base, task.key], self.replicates[candidate, task.key])
        return (
            task,
            self._request(Phase.CERTIFY, (), task, replicate),
            self._request(Phase.CERTIFY, bundle, task, replicate),
        )

    def _scores(self, task: TaskRef, base: Request, candidate: Request) -> Pair:
        return Pair(task.key, self.rows[base.key].score, self.rows[candidate.key].score)

    def _changes(self, lanes: Sequence[Lane]) -> list[Change]:
        """What the guards look at: strata of tasks, and criteria that both sides were scored on."""
        changes = []
        for lane in lanes:
            difference = _difference(self._scores(*lane))
            if difference is None:
                continue
            task, base, candidate = lane
            if task.stratum:
                changes.append(Change(f"tasks: {task.stratum}", difference))
            before, after = self.rows[base.key].criteria, self.rows[candidate.key].criteria
            changes += [
                Change(f"criterion: {name}", after[name] - before[name])
                for name in after
                if name in before
            ]
        return changes

    # --- rows

    def _request(
        self, phase: Phase, bundle: Bundle, task: TaskRef, replicate: int | None = None
    ) -> Request:
        candidate = self.config.candidate(bundle)
        if replicate is None:
            replicate = self.replicates[candidate, task.key]
        self.replicates[candidate, task.key] = replicate + 1
        seed = derive(self.config.seed, phase, task.key, replicate)
        request = Request(phase, bundle, candidate, task.key, replicate, seed)
        self.asked.append(request)
        return request

    def _results(self, requests: Sequence[Request], planned: int, doing: str) -> list[Row]:
        missing = [request for request in requests if request.key not in self.rows]
        if missing:
            phase = requests[0].phase
            of_phase = [request for request in self.asked if request.phase is phase]
            done = sum(request.key in self.rows for request in of_phase)
            raise _Missing(missing, Progress(phase, done, planned, doing))
        return [self.rows[request.key] for request in requests]

    def _coverage_problem(self, phase: Phase) -> str | None:
        keys = [request.key for request in self.asked if request.phase is phase]
        scored = sum(self.rows[key].score is not None for key in keys)
        if scored >= self.config.min_coverage * len(keys):
            return None
        return (
            f"only {scored} of {len(keys)} rollouts of the {phase} have a score; "
            f"{self.config.min_coverage:.0%} are needed to rank anything"
        )

    def _check_rows(self) -> None:
        strangers = self.rows.keys() - {request.key for request in self.asked}
        if strangers:
            candidate, task, replicate = min(strangers)
            raise SearchInvalid(
                f"{len(strangers)} rows were never asked for, such as candidate {candidate[:12]} "
                f"on {task}, replicate {replicate}: they belong to another configuration or seed"
            )

    def _finished(
        self,
        verdict: Verdict,
        reason: str,
        bundle: Bundle,
        arms: Sequence[Arm] = (),
        certificates: Sequence[Certificate] = (),
    ) -> Finished:
        return Finished(
            verdict=verdict,
            reason=reason,
            bundle=bundle,
            candidate=self.config.candidate(bundle),
            effects=tuple(effects(self.config.pool, self.observations)),
            arms=tuple(arms),
            certificates=tuple(certificates),
        )


def _difference(pair: Pair) -> float | None:
    if pair.base is None or pair.candidate is None:
        return None
    return pair.candidate - pair.base


def _sentence(certificate: Certificate) -> str:
    test = certificate.test
    if test.reason == "coverage":
        return f"only {test.coverage:.0%} of the pairs have two scores"
    if test.verdict is Verdict.INDECISIVE:
        return f"no decision after {test.valid} pairs (evidence {test.evidence:.2g})"
    word = "better" if test.verdict is Verdict.IMPROVED else "not better"
    worse = f"; but worse in {', '.join(certificate.breached)}" if certificate.breached else ""
    return f"{word} after {test.valid} pairs at α {test.alpha:.3g}{worse}"
