"""A whole search: what runs next, given the rollouts and the proposals that exist. Pure.

    twin       the seed against itself, to know the noise floor
    engine     looks for a better harness on train tasks (`optimizer.engines`)
    certify    what it found, on fresh pairs on select tasks (`optimizer.certification`)

`next_step(plan, rows, edits)` looks at nothing else, so a resumed search asks exactly for what is
missing and ends as an uninterrupted one. `search(plan, server)` is the same at one go.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from optimizer.certification import Certificate, Certifier, CertifyPlan
from optimizer.edits import Edit
from optimizer.engines import registry
from optimizer.engines.contract import (
    SEED,
    Ask,
    Buried,
    Candidate,
    Doing,
    Estimate,
    Found,
    Phase,
    Request,
    Row,
    SearchTask,
    Server,
    Tried,
)
from optimizer.engines.replay import MissingEdits, MissingRollouts, ReplayServer
from optimizer.errors import SearchInvalid
from optimizer.model_choice import ModelChoice, ModelPlan, choose
from optimizer.seeds import derive
from optimizer.statistics import Pair, Verdict, compare
from optimizer.tasks import TaskRef, passes

TWIN_REPLICATES = 1_000_000
"""Replicates of the twin start here: no engine asks for them, and its scores choose nothing."""


@dataclass(frozen=True)
class SearchPlan:
    """All that a search depends on, besides rollouts and proposals. Raises SearchInvalid."""

    train: tuple[TaskRef, ...]
    select: tuple[TaskRef, ...]
    search_rollouts: int
    """For evidence, twin and engine; certification has its own."""
    certify_pairs: int
    """All certificates together; a pair is two rollouts."""
    engine: str = "factorial"
    engine_settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    twin_pairs: int = 0
    """Seed against seed on train tasks; taken from `search_rollouts`."""
    certify_batch: int = 12
    alpha: float = 0.05
    max_certificates: int = 1
    min_coverage: float = 0.8
    to_the_end: bool = False
    safety: tuple[str, ...] = ()
    margin: float = 0.0
    """Of the certificate; above 0 it says "not worse by so much" instead of "better"."""
    models: tuple[Edit, ...] = ()
    """Other models to choose among for the winner; each edit sets the model."""
    model_margin: float = 0.05
    """δ, by how much a cheaper model may be worse."""
    model_rollouts: int = 0
    """On train tasks, to find the models worth a test."""
    model_pairs: int = 0
    """On select tasks, all tests together."""
    cost_weight: float = 0.0
    """λ: score (0 to 1) that a dollar per rollout is worth."""

    def __post_init__(self) -> None:
        if {task.key for task in self.train} & {task.key for task in self.select}:
            raise SearchInvalid("select: a task is in train too")
        if not self.train:
            raise SearchInvalid("train: a search needs at least one task")
        if self.engine_rollouts < 1:
            raise SearchInvalid(
                f"search_rollouts: {self.search_rollouts} leave nothing for the engine after "
                f"{self.twin_pairs} twin pairs"
            )
        self.certify_plan()
        if self.models:
            self.model_plan()
        registry.create(self.engine, self.engine_settings)

    @property
    def engine_rollouts(self) -> int:
        return self.search_rollouts - 2 * self.twin_pairs

    @property
    def max_rollouts(self) -> int:
        """No search asks for more."""
        models = self.model_rollouts + 2 * self.model_pairs if self.models else 0
        return self.search_rollouts + 2 * self.certify_pairs + models

    def model_plan(self) -> ModelPlan:
        """Raises SearchInvalid."""
        tests = replace(
            self.certify_plan(),
            pairs=self.model_pairs,
            margin=self.model_margin,
            max_certificates=max(2, len(self.models)),
            to_the_end=False,
        )
        return ModelPlan(
            models=self.models,
            train=self.train,
            rollouts=self.model_rollouts,
            certify=tests,
            cost_weight=self.cost_weight,
            seed=self.seed,
        )

    def certify_plan(self) -> CertifyPlan:
        return CertifyPlan(
            select=self.select,
            pairs=self.certify_pairs,
            seed=self.seed,
            batch=self.certify_batch,
            alpha=self.alpha,
            max_certificates=self.max_certificates,
            min_coverage=self.min_coverage,
            to_the_end=self.to_the_end,
            safety=self.safety,
            margin=self.margin,
        )


@dataclass(frozen=True)
class Noise:
    """What seed against seed looks like: differences of this size mean nothing."""

    pairs: int
    mean: float | None
    low: float | None
    high: float | None
    """95 % bootstrap interval over tasks."""
    sd: float | None
    """Of the difference of one pair."""


@dataclass(frozen=True)
class Finished:
    verdict: Verdict
    reason: str
    """One clause for people."""
    winner: Candidate
    """What the verdict is about; the best guess, not certified, where it is indecisive."""
    is_measured: bool
    """False: too few rollouts had a score to rank anything."""
    estimates: tuple[Estimate, ...] = ()
    tried: tuple[Tried, ...] = ()
    buried: tuple[Buried, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    noise: Noise | None = None
    model_choice: ModelChoice | None = None
    """Which model the shipped harness should run on; None where it was not asked for."""

    @property
    def certificate(self) -> Certificate | None:
        """That of the winner."""
        mine = [c for c in self.certificates if c.candidate.key == self.winner.key]
        return mine[-1] if mine else None

    @property
    def is_promotable(self) -> bool:
        return self.certificate is not None and self.certificate.is_promotable

    @property
    def shipped(self) -> Candidate:
        """What to go on with: the winner, or the seed where the evidence is against it.

        An indecisive winner is shipped, as not certified, if its own fresh pairs favour it.
        """
        certificate = self.certificate
        if certificate is None:
            return SEED
        if certificate.is_promotable:
            return self.winner
        mean = certificate.comparison.mean
        favours = mean is not None and mean > 0
        is_open = self.verdict is Verdict.INDECISIVE and not certificate.breached
        return self.winner if is_open and favours else SEED

    @property
    def claimed(self) -> float:
        """Gain in score that the fresh pairs show; 0 where the seed stays."""
        certificate = self.certificate
        if certificate is None or self.shipped.key == SEED.key:
            return 0.0
        return certificate.comparison.mean or 0.0


@dataclass(frozen=True)
class NeedRollouts:
    """These rollouts are missing; run them all, in any order, then ask again."""

    requests: tuple[Request, ...]
    doing: Doing


@dataclass(frozen=True)
class NeedEdits:
    """Proposers are asked; answer the round (an empty answer is one), then ask again."""

    ask: Ask


Step = NeedRollouts | NeedEdits | Finished


def next_step(plan: SearchPlan, rows: Iterable[Row], edits: Mapping[int, Sequence[Edit]]) -> Step:
    """What to do next. `edits` are the rounds that were answered: round -> all edits known then.

    Raises SearchInvalid for rows that do not belong to this search.
    """
    server = ReplayServer(rows, edits, budget=plan.max_rollouts)
    try:
        finished = search(plan, server)
    except MissingRollouts as missing:
        return NeedRollouts(missing.requests, missing.doing)
    except MissingEdits as missing:
        return NeedEdits(missing.ask)
    server.check_rows()
    return finished


def search(plan: SearchPlan, server: Server) -> Finished:
    """The whole search over a server that answers. Raises what the server raises."""
    noise = _twin(plan, server) if plan.twin_pairs else None
    engine = registry.create(plan.engine, plan.engine_settings)
    task = SearchTask(plan.train, plan.engine_rollouts, plan.seed, plan.min_coverage)
    found = engine.run(task, server)
    certificates = _certificates(plan, found, server)
    if not certificates:
        nothing = _finished(found, Verdict.INDECISIVE, found.reason, SEED, (), noise)
        return _with_model(plan, nothing, server) if found.is_measured else nothing
    last = certificates[-1]
    chosen = last if last.test.verdict is Verdict.IMPROVED else certificates[0]
    finished = _finished(
        found, chosen.test.verdict, chosen.sentence, chosen.candidate, tuple(certificates), noise
    )
    return _with_model(plan, finished, server)


def _with_model(plan: SearchPlan, finished: Finished, server: Server) -> Finished:
    """The same with the choice of a model for what is shipped."""
    if not plan.models:
        return finished
    used: Counter[tuple[str, str]] = Counter()
    for certificate in finished.certificates:
        for key in {pair.task for pair in certificate.pairs}:
            for side in (SEED.key, certificate.candidate.key):
                used[side, key] += sum(pair.task == key for pair in certificate.pairs)
    choice = choose(plan.model_plan(), finished.shipped, server, used)
    return replace(finished, model_choice=choice)


def _certificates(plan: SearchPlan, found: Found, server: Server) -> list[Certificate]:
    certifier = Certifier(plan.certify_plan(), server)
    given: list[Certificate] = []
    for candidate in found.ranked[: plan.max_certificates]:
        if certifier.left < 1:
            break
        given.append(certifier.certify(candidate))
        if given[-1].test.verdict is Verdict.IMPROVED:
            break
    return given


def _twin(plan: SearchPlan, server: Server) -> Noise:
    tasks = list(islice(passes(plan.train, plan.seed, "twin"), plan.twin_pairs))
    requests, seen = [], dict.fromkeys((task.key for task in tasks), TWIN_REPLICATES)
    for task in tasks:
        for _ in range(2):
            replicate = seen[task.key]
            seen[task.key] += 1
            seed = derive(plan.seed, Phase.TWIN, task.key, replicate)
            requests.append(Request(Phase.TWIN, SEED, task.key, replicate, seed))
    doing = Doing(Phase.TWIN, 0, len(requests), "measuring the noise floor, seed against seed")
    rows = server.rollouts(requests, doing)
    pairs = [Pair(a.task, a.score, b.score) for a, b in zip(rows[::2], rows[1::2], strict=True)]
    found = compare(pairs)
    return Noise(found.pairs, found.mean, found.low, found.high, _pair_sd(pairs))


def _pair_sd(pairs: Sequence[Pair]) -> float | None:
    """Of seed against seed the mean is 0 by construction, so nothing is estimated for it."""
    squares = [
        (p.candidate - p.base) ** 2 for p in pairs if p.base is not None and p.candidate is not None
    ]
    return math.sqrt(math.fsum(squares) / len(squares)) if squares else None


def _finished(
    found: Found,
    verdict: Verdict,
    reason: str,
    winner: Candidate,
    certificates: tuple[Certificate, ...],
    noise: Noise | None,
) -> Finished:
    return Finished(
        verdict=verdict,
        reason=reason,
        winner=winner,
        is_measured=found.is_measured,
        estimates=found.estimates,
        tried=found.tried,
        buried=found.buried,
        certificates=certificates,
        noise=noise,
    )
