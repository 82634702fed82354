"""What an engine is given, how it spends, and what it returns.

An engine is a function of a task and a server. It asks the server for rollouts and for proposals
and looks at nothing else; every choice of its own comes from a hash of the task's seed and of what
the choice is for (`optimizer.seeds`). The server may therefore be one that answers at once (a
benchmark), or one that knows what has been answered so far and stops the engine at the first thing
missing (`optimizer.engines.replay`): an engine that is run again from its start, with more answers,
comes to the same place. That is how a search survives a kill without a state of its own.

Engines see train tasks alone. The select tasks belong to certification (`optimizer.certification`),
and the sealed test to nobody here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Protocol

from optimizer.edits import Edit
from optimizer.tasks import TaskRef


class Phase(StrEnum):
    EVIDENCE = "evidence"
    """The seed alone, before anything is proposed."""
    TWIN = "twin"
    """Seed against seed: the noise floor."""
    SCREEN = "screen"
    RACE = "race"
    CERTIFY = "certify"
    MODELS = "models"
    """The winner on other models."""


def candidate_key(edit_hashes: Iterable[str]) -> str:
    """Names the harness that a set of edits makes of the seed; the seed itself is the empty set."""
    return hashlib.sha256(json.dumps(sorted(edit_hashes)).encode()).hexdigest()


@dataclass(frozen=True)
class Candidate:
    """The seed with some edits; equal sets of edits are the same candidate."""

    edits: tuple[Edit, ...] = ()

    @cached_property
    def key(self) -> str:
        return candidate_key(edit.sha256 for edit in self.edits)


SEED = Candidate()


@dataclass(frozen=True)
class Request:
    """One rollout to run; unique by candidate, task and replicate."""

    phase: Phase
    candidate: Candidate
    task: str
    """Key of the task."""
    replicate: int
    seed: int
    """For sampling; equal for both sides of a pair."""

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.candidate.key, self.task, self.replicate)


@dataclass(frozen=True)
class Row:
    """One finished rollout. Without a score (errored, not applicable) `score` is None."""

    candidate: str
    """Key of the candidate."""
    task: str
    replicate: int
    score: float | None
    criteria: Mapping[str, float] = field(default_factory=dict)
    """Of the criteria that were scored, 0 to 1 and more is better: for the guards."""
    met: Mapping[str, bool] = field(default_factory=dict)
    """Whether a criterion with a verdict reached its threshold: for what must never fail."""
    cost_usd: float = 0.0
    tokens: int = 0
    """In and out."""
    latency_s: float | None = None
    phase: str = ""
    lesson: str = ""
    """What an analyst of this one rollout suggests; only worlds that give lessons fill it."""

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.candidate, self.task, self.replicate)


@dataclass(frozen=True)
class Ask:
    """A wish for edits, on the evidence so far."""

    round: int
    """Counted from 0; the same round has the same answer for ever."""
    parent: Candidate
    """What the edits should improve; edits are made for the seed all the same, unless `rewrite`."""
    rows: tuple[Row, ...]
    """All rows so far, in the order in which they were asked for."""
    rewrite: bool = False
    """True: one answer that changes the parent as a whole is as welcome as single edits."""


@dataclass(frozen=True)
class Doing:
    """Progress, for people."""

    phase: Phase
    done: int
    planned: int
    """Rollouts of this phase at most."""
    text: str


class Server(Protocol):
    """The only way to spend. Every call may end the engine by raising; engines do not catch."""

    def rollouts(self, requests: Sequence[Request], doing: Doing) -> list[Row]:
        """A row for each request, in their order. Raises BudgetSpent without serving any of them if
        they do not all fit; engines plan by `SearchTask.rollouts` and never meet it.
        """
        ...

    def edits(self, ask: Ask) -> Sequence[Edit]:
        """All edits that are known after this round, with their support; linted, deduplicated, in a
        stable order: later rounds add at the end and raise supports.
        """
        ...


@dataclass(frozen=True)
class SearchTask:
    """What an engine may know. Its own settings are its constructor's."""

    train: tuple[TaskRef, ...]
    rollouts: int
    """The search may ask for so many, evidence included; certification has its own."""
    seed: int = 0
    min_coverage: float = 0.8
    """Share of rollouts with a score below which nothing is ranked."""


@dataclass(frozen=True)
class Estimate:
    """What one edit does to the score (0 to 1 scale), from rollouts with and without it."""

    edit: Edit
    mean: float
    sd: float
    probability_positive: float
    n_with: int
    n_without: int

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval."""
        return self.mean - 1.96 * self.sd

    @property
    def high(self) -> float:
        return self.mean + 1.96 * self.sd


@dataclass(frozen=True)
class Tried:
    """A candidate that the engine ran or compared; what the candidate tree is made of."""

    candidate: Candidate
    parent: str = ""
    """Key of the candidate that it came from."""
    relation: str = ""
    """mutate, merge, prune or model swap."""
    n: int = 0
    """Scores it has on train tasks."""
    mean: float | None = None
    estimate: float | None = None
    """What the engine believes of it, its model included."""


@dataclass(frozen=True)
class Buried:
    """An edit that was rejected: why, and with which support it may come back."""

    edit: Edit
    reason: str
    evidence: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What an engine ends with: candidates worth a certificate, best first (none: the seed stays).

    Scores in here chose the winner and are never claimed.
    """

    ranked: tuple[Candidate, ...]
    reason: str
    """One clause on why it stopped, for people."""
    estimates: tuple[Estimate, ...] = ()
    tried: tuple[Tried, ...] = ()
    buried: tuple[Buried, ...] = ()
    is_measured: bool = True
    """False: too few rollouts had a score to rank anything."""


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    def run(self, task: SearchTask, server: Server) -> Found: ...
