"""A certificate as one document: what the page shows, and what is exported.

It says what was found, on which evidence, and what is not claimed. Everything in it comes from the
stored comparison and its search; nothing is computed anew, so that the page,
its print and both exports agree for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from optimizer.models import Candidate, Comparison, Edit, Search
from orchestrator.web.search_edits import few_words
from orchestrator.web.search_figures import (
    NARROW_CURVE,
    PRINTED_CURVE,
    EvidenceCurve,
    evidence_curve,
)
from orchestrator.web.search_page import BudgetLine, Noise, points, real, whole

GUARD_MARGIN = 0.05


@dataclass(frozen=True)
class GuardRow:
    """One criterion or stratum of tasks: how it changed, and whether it got worse for sure."""

    name: str
    pairs: int
    mean: float
    upper: float | None
    is_breached: bool

    @property
    def state(self) -> str:
        if self.upper is None:
            return "silent"
        return "breached" if self.is_breached else "kept"


@dataclass(frozen=True)
class Part:
    """Something the certificate depends on, by its content."""

    what: str
    name: str
    sha256: str


@dataclass(frozen=True)
class Certificate:
    id: str
    title: str
    verdict: str
    """As stored: improved, not_improved, indecisive; or better, regressed, inconclusive."""
    words: str
    method: str
    split: str
    difference: float | None
    low: float | None
    high: float | None
    pairs: int
    scheduled: int
    coverage: float
    alpha: float
    e_value: float | None
    threshold: float | None
    crossing_pair: int | None
    guards: Sequence[GuardRow]
    breached: Sequence[str]
    e_plus: Sequence[float]
    e_minus: Sequence[float]
    edits: Sequence[str]
    parts: Sequence[Part]
    model: str
    tasks: Sequence[str]
    seed: int
    spent: Sequence[tuple[str, str, float]]
    """Role, unit, amount of the whole search."""
    own: Mapping[str, float] = field(default_factory=dict)
    """What this certificate itself took: rollouts, tokens, cost_usd."""
    noise: Noise | None = None
    not_claimed: Sequence[str] = ()
    measured_at: datetime | None = None
    harness_id: int | None = None
    """Of the candidate's harness, in this installation."""
    tests: Mapping[str, Any] = field(default_factory=dict)
    """Exact tests beside the interval, of the sealed test."""

    @property
    def is_test(self) -> bool:
        return self.split == "test"

    @property
    def alpha_text(self) -> str:
        return f"{self.alpha:.3g}"

    @property
    def unguarded(self) -> list[str]:
        """What holds it back and is no row of the table of guards: criteria of safety."""
        named = {guard.name for guard in self.guards}
        return [name for name in self.breached if name not in named]

    @property
    def is_good(self) -> bool:
        return self.verdict in ("improved", "better") and not self.breached

    def curve(self, *, is_narrow: bool = False) -> EvidenceCurve | None:
        if self.threshold is None:
            return None
        return evidence_curve(
            self.e_plus,
            self.e_minus,
            threshold=self.threshold,
            crossing_pair=self.crossing_pair,
            is_better=self.verdict != "not_improved",
            frame=NARROW_CURVE if is_narrow else PRINTED_CURVE,
        )

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        del data["harness_id"]
        data["measured_at"] = self.measured_at.isoformat() if self.measured_at else None
        data["spent"] = [
            {"role": role, "unit": unit, "amount": amount} for role, unit, amount in self.spent
        ]
        return {"format": "switchback-certificate-1", **data}


def certificate(
    *,
    comparison: Comparison,
    search: Search,
    candidate: Candidate | None,
    edits: Sequence[Edit],
    tasks: Sequence[str],
    budgets: Sequence[BudgetLine],
    noise: Noise | None,
) -> Certificate:
    """`tasks`: keys of the split's tasks, for certificates that did not keep their own list."""
    details: Mapping[str, Any] = comparison.details or {}
    guards = [
        GuardRow(
            name=str(item.get("name", "")),
            pairs=whole(item.get("pairs")) or 0,
            mean=real(item.get("mean")) or 0.0,
            upper=real(item.get("upper")),
            is_breached=bool(item.get("is_breached", item.get("name") in breached_of(details))),
        )
        for item in details.get("guards", ())
    ]
    listed = [str(key) for key in details.get("tasks", ())]
    is_bet = comparison.method == "e_process"
    threshold = real(details.get("threshold")) or (1.0 / comparison.alpha if is_bet else None)
    return Certificate(
        id=f"c_{comparison.pk:02d}",
        title=title_of(comparison),
        verdict=comparison.verdict,
        words=in_words(comparison, search.seed_harness.short),
        method=comparison.method,
        split=comparison.split,
        difference=comparison.difference,
        low=comparison.low,
        high=comparison.high,
        pairs=comparison.pairs,
        scheduled=whole(details.get("scheduled")) or _scheduled(comparison),
        coverage=comparison.coverage,
        alpha=comparison.alpha,
        e_value=comparison.e_value,
        threshold=threshold if is_bet else None,
        crossing_pair=whole(details.get("crossing_pair")),
        guards=guards,
        breached=breached_of(details),
        e_plus=[v for v in map(real, details.get("e_plus", ())) if v is not None],
        e_minus=[v for v in map(real, details.get("e_minus", ())) if v is not None],
        edits=[few_words(edit.data, 200) for edit in edits],
        parts=_parts(search, candidate),
        model=_model(search),
        tasks=listed or list(tasks),
        seed=whole(details.get("seed")) or search.seed,
        spent=[(line.role, line.unit, line.used) for line in budgets],
        own=_own(details),
        noise=noise,
        not_claimed=_not_claimed(comparison, search),
        measured_at=comparison.created_at,
        harness_id=candidate.harness_id if candidate else None,
        tests={
            name: details[name]
            for name in ("sign_test", "sign_flip", "mcnemar")
            if isinstance(details.get(name), Mapping)
        },
    )


def _own(details: Mapping[str, Any]) -> dict[str, float]:
    """Both sides together."""
    found: dict[str, float] = {}
    for side in details.get("spent", {}).values():
        for name in ("rollouts", "tokens", "cost_usd"):
            found[name] = found.get(name, 0.0) + (real(side.get(name)) or 0.0)
    return found


def breached_of(details: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in details.get("breached", ())]


def title_of(comparison: Comparison) -> str:
    if comparison.split == "test":
        return "Sealed test"
    number = whole((comparison.details or {}).get("number")) or 1
    return f"Certificate {number}"


def _scheduled(comparison: Comparison) -> int:
    if not comparison.coverage:
        return comparison.pairs
    return round(comparison.pairs / comparison.coverage)


def _parts(search: Search, candidate: Candidate | None) -> list[Part]:
    found = []
    if search.environment_version is not None:
        version = search.environment_version
        found.append(Part("Environment", str(version), version.sha256))
    if search.rubric_version is not None:
        found.append(Part("Rubric", str(search.rubric_version), search.rubric_version.sha256))
    found.append(Part("Seed harness", search.seed_harness.short, search.seed_harness.sha256))
    if candidate is not None:
        found.append(Part("Candidate", candidate.harness.short, candidate.harness.sha256))
    return found


def _model(search: Search) -> str:
    if search.model is None:
        return ""
    return f"{search.model.name} ({search.model.model})"


def in_words(comparison: Comparison, base: str) -> str:
    """The verdict as a sentence that can be read out."""
    details: Mapping[str, Any] = comparison.details or {}
    gain = (
        f"{points(comparison.difference)} points "
        f"[{points(comparison.low)}, {points(comparison.high)}]"
    )
    n = comparison.pairs
    if comparison.split == "test":
        return {
            "better": f"Better than the seed {base} on the sealed test: {gain} over {n} pairs.",
            "regressed": f"Worse than the seed {base} on the sealed test: {gain} over {n} pairs.",
            "inconclusive": (
                f"The sealed test cannot tell the candidate from the seed {base}: {gain}. "
                f"{n} pairs are too few for a difference of this size."
            ),
        }.get(
            comparison.verdict,
            f"No verdict: {comparison.coverage:.0%} of the pairs have two scores. What is missing "
            "is an error of the installation and says nothing of the candidate.",
        )
    if comparison.verdict == "improved":
        text = (
            f"Better than the seed {base}: {gain} over {n} fresh pairs on tasks that no proposer "
            f"saw. Were it no better, evidence this strong would come in at most "
            f"{comparison.alpha:.2%} of searches, however often one looks."
        ).replace(".00%", "\N{NO-BREAK SPACE}%")
        if breached := breached_of(details):
            text += f" It is worse in {', '.join(breached)}, and is therefore not promoted."
        return text
    if comparison.verdict == "not_improved":
        return f"Not better than the seed {base}: {gain} over {n} fresh pairs; the seed stays."
    if details.get("reason") == "coverage" or comparison.coverage < 0.8:
        return (
            f"No decision: only {comparison.coverage:.0%} of the pairs have two scores, and 80 % "
            "are needed. Look at what errored, then search again."
        )
    needed = real(details.get("threshold")) or 1.0 / comparison.alpha
    reached = "–" if comparison.e_value is None else f"{comparison.e_value:.2g}"
    return (
        f"No decision: {gain} over {n} fresh pairs. The evidence came to {reached}; {needed:.3g} "
        "are needed. More pairs may decide; the candidate is not certified."
    )


def _not_claimed(comparison: Comparison, search: Search) -> list[str]:
    where = "model, environment version and rubric version"
    common = [
        f"Anything beyond this {where}: another of them needs a certificate of its own.",
        "That each edit in it helps: effects of single edits are estimates that guided the search.",
        "That nothing got worse: a guard speaks only where it is 90 % sure of more than "
        f"{100 * GUARD_MARGIN:.0f} points, and is silent below 5 pairs.",
    ]
    if comparison.split == "test":
        return [
            "A second reading: the sealed test is read once for each claim, and this was it.",
            "A gain on each task: the interval is that of the mean over the tasks.",
            *common[:2],
        ]
    return [
        "A gain on new tasks: it speaks of the mean over these select tasks, with repeated "
        "attempts at them. Whether it carries over is what the sealed test says.",
        "A gain of exactly this size: the difference and its interval describe the pairs that "
        "were run; the verdict rests on the evidence.",
        *common,
    ]
