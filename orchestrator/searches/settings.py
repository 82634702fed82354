"""Settings of a search, stored with it as JSON. Pure.

Caps are of the whole search. Rollouts are always capped; what is set aside for certification, for
the sealed test and for repeats after infrastructure errors is cut off the same number at the start
(`shares_of`), and the search proper cannot touch it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from optimizer.engines import registry

MIN_PAIRS = 8
"""Eight straight wins are the shortest way to a certificate at α = .05."""
RETRY_SHARE = 0.05
"""Of all rollouts, for repeats after infrastructure errors."""
PREFLIGHT_ROLLOUTS = 2
"""Of the seed, to have something to grade; one that can be scored is enough."""


@dataclass(frozen=True)
class BudgetSettings:
    """What the search may spend, by role. None: no cap of its own."""

    rollouts: int = 600
    """Of the agent, all phases together."""
    tokens: int | None = None
    """Of the agent, in and out."""
    usd: float | None = None
    """Of the agent."""
    seconds: int | None = None
    """Of runs, wall time."""
    judge_usd: float | None = None
    judge_tokens: int | None = None
    proposer_usd: float | None = None
    proposer_tokens: int | None = None

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and not value > 0:
                raise ValueError(f"budget.{each.name} is above 0, not {value!r}.")


@dataclass(frozen=True)
class SearchSettings:
    """What a search does; a figure is a number of rollouts, tasks or pairs unless it says so."""

    engine: str = "factorial"
    engine_settings: dict[str, Any] = field(default_factory=dict)
    """Of the engine's constructor."""
    proposers: tuple[str, ...] = ("offline",)
    """`offline` for all operators that need no model, single ones of them, or those of
    `orchestrator.proposing`: see `proposers.KNOWN`.
    """
    proposer_settings: dict[str, Any] = field(default_factory=dict)
    """By proposer; of `offline` numbers of edits, of the others fields of `proposing.terms`."""
    proposer_model: int | None = None
    """Id of the model endpoint that reflects; None: the search's own model does."""
    propose_every: int = 8
    """Rounds of the engine in which proposers are asked: the first, then every so many. In the
    others what is known is tried on.
    """
    protected: tuple[str, ...] = ()
    """Components that no edit may touch."""
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    certify_pairs: int = 60
    """At most, all certificates together; each costs two rollouts."""
    certify_batch: int = 12
    """Pairs that are run before the test is looked at again."""
    max_certificates: int = 1
    twin_pairs: int = 0
    """Of the A/A twin, the seed against itself; 0: the noise floor is not measured."""
    alpha: float = 0.05
    margin: float = 0.05
    """Quality (0 to 1) that a cheaper model may be worse by."""
    models: tuple[int, ...] = ()
    """Ids of model endpoints to choose the cheapest non-inferior of; empty: the search's own."""
    model_rollouts: int = 48
    """On train tasks, to find the models that are worth a test; only where there are `models`."""
    model_pairs: int = 60
    """On select tasks, all tests of models together; each costs two rollouts."""
    safety: tuple[str, ...] = ()
    """Ids of criteria that a promoted candidate meets in every rollout of its certificate."""
    cost_weight: float = 0.0
    """λ: score (0 to 1) that a US dollar per rollout is worth; a candidate must gain after it."""
    test: bool = True
    """Read the sealed test for the winner, once."""
    test_replicates: int = 1
    concurrency: int = 32
    """Rollouts in flight."""
    is_part: bool = False
    """Of a climb: nobody approves, the climb reads the sealed test, a spent budget ends it."""

    def __post_init__(self) -> None:
        if self.engine not in registry.ENGINES:
            known = ", ".join(registry.ENGINES)
            raise ValueError(f"engine is one of {known}, not {self.engine!r}.")
        if not self.proposers:
            raise ValueError("proposers: name at least one.")
        if not 0.0 < self.alpha < 1.0:
            raise ValueError(f"alpha is between 0 and 1, not {self.alpha}.")
        if not 0.0 <= self.margin < 1.0:
            raise ValueError(f"margin is from 0 to below 1, not {self.margin}.")
        for name in (
            "certify_pairs",
            "certify_batch",
            "max_certificates",
            "test_replicates",
            "concurrency",
            "propose_every",
            "model_rollouts",
            "model_pairs",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is at least 1, not {getattr(self, name)}.")
        if self.models and not self.margin:
            raise ValueError("margin is above 0 where models are chosen among.")
        if self.twin_pairs < 0 or self.cost_weight < 0:
            raise ValueError("twin_pairs and cost_weight are not negative.")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SearchSettings:
        """Raises ValueError naming an unknown or impossible field."""
        values = _known(cls, data, "search settings")
        values["budget"] = BudgetSettings(
            **_known(BudgetSettings, data.get("budget", {}), "budget settings")
        )
        for name in ("proposers", "protected", "models", "safety"):
            if name in values:
                values[name] = tuple(values[name])
        return cls(**values)


def _known(kind: type[Any], data: Mapping[str, Any], what: str) -> dict[str, Any]:
    unknown = set(data) - {f.name for f in fields(kind)}
    if unknown:
        raise ValueError(f"Unknown {what}: {', '.join(sorted(unknown))}.")
    return dict(data)


@dataclass(frozen=True)
class Shares:
    """How the rollouts are divided. The sum is the cap."""

    search: int
    """Preflight, evidence, the A/A twin and the engine."""
    certify: int
    test: int
    """Both sides of the sealed test."""
    retry: int
    """Repeats after infrastructure errors."""
    models: int = 0
    """To choose among models."""

    def engine(self, settings: SearchSettings) -> int:
        """What a search may plan with: the preflight comes first."""
        return self.search - (0 if settings.is_part else PREFLIGHT_ROLLOUTS)

    @property
    def total(self) -> int:
        return self.search + self.certify + self.test + self.retry + self.models


def shares_of(settings: SearchSettings, *, test_tasks: int) -> Shares:
    """May leave nothing, or less, for the search: see `problems_of`."""
    total = settings.budget.rollouts
    certify = 2 * settings.certify_pairs
    test = 2 * test_tasks * settings.test_replicates if settings.test else 0
    retry = max(1, round(RETRY_SHARE * total))
    models = settings.model_rollouts + 2 * settings.model_pairs if settings.models else 0
    return Shares(total - certify - test - retry - models, certify, test, retry, models)


def problems_of(settings: SearchSettings, *, train: int, select: int, test: int) -> list[str]:
    """Why a search over so many tasks cannot work; empty if it can."""
    found = []
    if not train:
        found.append("The environment has no train task; edits are tried on those.")
    if not select:
        found.append("The environment has no select task; certificates are won on those.")
    if settings.test and not test:
        found.append("The environment has no sealed test task; switch the sealed test off.")
    shares = shares_of(settings, test_tasks=test)
    if shares.search < train:
        set_aside = shares.total - shares.search
        found.append(
            f"The budget of {settings.budget.rollouts} rollouts is smaller than one pass: "
            f"{set_aside} are set aside ({shares.certify} to certify, {shares.test} for the sealed "
            f"test, {shares.retry} for repeats{_for_models(shares)}), which leaves "
            f"{max(0, shares.search)} for {train} train tasks. Allow at least "
            f"{set_aside + train}, or fewer pairs."
        )
    # In a climb the sealed test has the last word, also on a winner without a certificate.
    if settings.certify_pairs < MIN_PAIRS and not settings.is_part:
        found.append(
            f"{settings.certify_pairs} pairs can certify nothing: {MIN_PAIRS} straight wins are "
            "the shortest way. Allow more pairs."
        )
    return found


def _for_models(shares: Shares) -> str:
    return f", {shares.models} to choose among models" if shares.models else ""
