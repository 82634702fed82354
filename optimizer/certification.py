"""Certificates: fresh pairs of a candidate and the seed on select tasks, unseen by proposers.

The test is the betting process of `optimizer.statistics.betting`, which may be looked at after
every batch. The j-th certificate of a search is tested at α·6/(π²·j²) if the search may ask for
more than one, the first included. What made a candidate win in the search is not used here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from optimizer.engines.contract import SEED, Candidate, Doing, Phase, Request, Row, Server
from optimizer.errors import SearchInvalid
from optimizer.guards import Change, Guard, guards
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

MAX_MARGIN = 0.4
"""Of the test: with its largest bet a wider one could bring the capital below zero."""


@dataclass(frozen=True)
class CertifyPlan:
    """Raises SearchInvalid."""

    select: tuple[TaskRef, ...]
    pairs: int
    """All certificates of the search together; a pair is two rollouts."""
    seed: int = 0
    batch: int = 12
    """Pairs that are run before the test is looked at again."""
    alpha: float = 0.05
    max_certificates: int = 1
    min_coverage: float = 0.8
    to_the_end: bool = False
    """Run all pairs, also behind the crossing: the mean of the pairs is then free of the bias of
    stopping. The verdict is that of the first crossing either way.
    """
    safety: tuple[str, ...] = ()
    """Criteria that the candidate must meet in every rollout, whatever the seed does."""
    margin: float = 0.0
    """δ: what is tested is "not worse by δ or more" instead of "better"."""

    def __post_init__(self) -> None:
        for name in ("pairs", "batch", "max_certificates"):
            if getattr(self, name) < 1:
                raise SearchInvalid(f"{name}: accepts at least 1, got {getattr(self, name)}")
        if not 0.0 < self.alpha < 1.0:
            raise SearchInvalid(f"alpha: accepts numbers between 0 and 1, got {self.alpha}")
        if not 0.0 <= self.margin <= MAX_MARGIN:
            raise SearchInvalid(f"margin: accepts 0 to {MAX_MARGIN}, got {self.margin}")
        if not self.select:
            raise SearchInvalid("select: certification needs at least one task")

    def alpha_of(self, number: int) -> float:
        """Of the j-th certificate, counted from 1."""
        return self.alpha if self.max_certificates == 1 else alpha_share(number, self.alpha)


@dataclass(frozen=True)
class Certificate:
    number: int
    candidate: Candidate
    test: EProcess
    comparison: PairedResult
    """Of all pairs that were run, also those behind the crossing; describes, does not decide."""
    guards: tuple[Guard, ...]
    unsafe: tuple[str, ...] = ()
    """Safety criteria that the candidate failed once, or that were never judged."""
    pairs: tuple[Pair, ...] = ()

    @property
    def breached(self) -> tuple[str, ...]:
        """Names of what got worse; nothing is promoted over one."""
        return (*self.unsafe, *(guard.name for guard in self.guards if guard.is_breached))

    @property
    def is_promotable(self) -> bool:
        return self.test.verdict is Verdict.IMPROVED and not self.breached

    @property
    def sentence(self) -> str:
        """One clause for people."""
        test = self.test
        if test.reason == "coverage":
            return f"only {test.coverage:.0%} of the pairs have two scores"
        if test.verdict is Verdict.INDECISIVE:
            return f"no decision after {test.valid} pairs (evidence {test.evidence:.2g})"
        word = "better" if test.verdict is Verdict.IMPROVED else "not better"
        worse = f"; but held back by {', '.join(self.breached)}" if self.breached else ""
        return f"{word} after {test.valid} pairs at α {test.alpha:.3g}{worse}"


Lane = tuple[TaskRef, Request, Request]
"""One pair: the task, the seed's rollout and the candidate's."""


@dataclass
class Certifier:
    """Gives the certificates of one search; fresh replicates throughout."""

    plan: CertifyPlan
    server: Server
    replicates: Counter[tuple[str, str]] = field(default_factory=Counter)
    used: int = 0
    """Pairs of all certificates so far."""
    number: int = 0
    phase: Phase = Phase.CERTIFY

    def __post_init__(self) -> None:
        self.order: Iterator[TaskRef] = passes(self.plan.select, self.plan.seed, "select")

    @property
    def left(self) -> int:
        return self.plan.pairs - self.used

    def certify(self, candidate: Candidate, base: Candidate = SEED) -> Certificate:
        """Needs pairs that are left; the caller asks for no more than `max_certificates`."""
        plan = self.plan
        self.number += 1
        most = self.left
        lanes: list[Lane] = []
        rows: dict[tuple[str, str, int], Row] = {}
        while True:
            batch = min(plan.batch, most - len(lanes))
            new = [self._pair(candidate, base, task) for task in islice(self.order, batch)]
            lanes += new
            requests = [request for _, *both in new for request in both]
            text = f"certificate {self.number}: {len(lanes)} of at most {most} pairs"
            doing = Doing(self.phase, 2 * self.used, 2 * plan.pairs, text)
            for row in self.server.rollouts(requests, doing):
                rows[row.key] = row
            self.used += batch
            pairs = [_scores(lane, rows) for lane in lanes]
            test = e_process(
                [_difference(pair) for pair in pairs],
                alpha=plan.alpha_of(self.number),
                shift=plan.margin,
                min_coverage=plan.min_coverage,
            )
            if len(lanes) >= most or (test.has_crossed and not plan.to_the_end):
                break
        return Certificate(
            number=self.number,
            candidate=candidate,
            test=test,
            comparison=compare(pairs),
            guards=tuple(guards(_changes(lanes, rows))),
            unsafe=tuple(_unsafe(plan.safety, lanes, rows)),
            pairs=tuple(pairs),
        )

    def _pair(self, candidate: Candidate, base: Candidate, task: TaskRef) -> Lane:
        # Both sides get the same replicate, one that neither has used: pairs are fresh.
        keys = [(side.key, task.key) for side in (base, candidate)]
        replicate = max(self.replicates[key] for key in keys)
        for key in keys:
            self.replicates[key] = replicate + 1
        seed = derive(self.plan.seed, self.phase, task.key, replicate)
        first, second = (
            Request(self.phase, side, task.key, replicate, seed) for side in (base, candidate)
        )
        return (task, first, second)


Rows = dict[tuple[str, str, int], Row]


def _scores(lane: Lane, rows: Rows) -> Pair:
    task, base, candidate = lane
    return Pair(task.key, rows[base.key].score, rows[candidate.key].score)


def _difference(pair: Pair) -> float | None:
    if pair.base is None or pair.candidate is None:
        return None
    return pair.candidate - pair.base


def _changes(lanes: Sequence[Lane], rows: Rows) -> list[Change]:
    """What the guards look at: strata of tasks, and criteria that both sides were scored on."""
    changes = []
    for lane in lanes:
        difference = _difference(_scores(lane, rows))
        if difference is None:
            continue
        task, base, candidate = lane
        if task.stratum:
            changes.append(Change(f"tasks: {task.stratum}", difference))
        before, after = rows[base.key].criteria, rows[candidate.key].criteria
        changes += [
            Change(f"criterion: {name}", after[name] - before[name])
            for name in after
            if name in before
        ]
    return changes


def _unsafe(safety: Sequence[str], lanes: Sequence[Lane], rows: Rows) -> list[str]:
    """Silence is not safety: a criterion without a single verdict is not met either."""
    found = []
    for name in safety:
        met = [rows[side.key].met[name] for _, _, side in lanes if name in rows[side.key].met]
        if not met:
            found.append(f"criterion: {name} (must always be met, but has no verdict)")
        elif failed := met.count(False):
            found.append(f"criterion: {name} (must always be met, failed {failed} of {len(met)})")
    return found
