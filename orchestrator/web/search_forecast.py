"""What a search would cost and what it could show, before anything is spent.

Figures of one rollout come from past rollouts of the same environment version, rubric and model on
open tasks; without any, only counts are forecast and the page says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from optimizer.errors import SearchInvalid
from optimizer.forecast import Forecast, PerRollout, Range, forecast
from orchestrator.agents.models import ModelEndpoint
from orchestrator.environments.models import EnvironmentVersion
from orchestrator.searches.planning import make_plan
from orchestrator.searches.settings import SearchSettings, problems_of, shares_of
from orchestrator.web.search_queries import Past, past_rollouts, task_counts
from rubrics.models import RubricVersion

ENOUGH = 5
"""Past rollouts below which nothing is forecast from them."""


@dataclass(frozen=True)
class OutlookRow:
    what: str
    unit: str
    """rollouts, tokens, usd or seconds; none: `text` says why there is no number."""
    low: float = 0.0
    high: float = 0.0
    text: str = ""


@dataclass(frozen=True)
class Outlook:
    see: str
    """The smallest gain that it can show, as a sentence."""
    rows: Sequence[OutlookRow] = ()
    shares: Sequence[tuple[str, int]] = ()
    basis: str = ""
    problems: Sequence[str] = field(default_factory=list)


def outlook(
    *,
    version: EnvironmentVersion,
    rubric: RubricVersion,
    model: ModelEndpoint,
    settings: SearchSettings,
) -> Outlook:
    counts = task_counts(version.pk)
    n_test = counts.get("test", 0)
    shares = shares_of(settings, test_tasks=n_test)
    problems = problems_of(
        settings, train=counts.get("train", 0), select=counts.get("select", 0), test=n_test
    )
    parts = [
        ("to search", max(0, shares.search)),
        ("to certify", shares.certify),
        ("for the sealed test", shares.test),
        ("for repeats", shares.retry),
        *([("to choose among models", shares.models)] if shares.models else []),
    ]
    if problems:
        return Outlook(see="", shares=parts, problems=problems)
    try:
        plan = make_plan(version, settings, seed=0)
    except SearchInvalid as refused:
        return Outlook(see="", shares=parts, problems=[str(refused)])
    past = past_rollouts(version.pk, rubric.pk, model.pk)
    rate = _rate(past)
    expected = forecast(
        plan,
        per_rollout=per_rollout(past),
        concurrency=settings.concurrency,
        base_rate=rate,
        test_rollouts=shares.test,
    )
    return Outlook(
        see=expected.sentence, rows=_rows(expected), shares=parts, basis=_basis(past, rate)
    )


def per_rollout(past: Sequence[Past]) -> PerRollout:
    """The middle half of what past rollouts took."""
    if len(past) < ENOUGH:
        return PerRollout()
    return PerRollout(
        tokens=_range([float(row.tokens) for row in past]),
        usd=_range([row.usd for row in past]),
        seconds=_range([row.seconds for row in past if row.seconds is not None]),
    )


def _range(values: Sequence[float]) -> Range | None:
    if len(values) < ENOUGH:
        return None
    first, _, third = statistics.quantiles(values, n=4)
    return Range(first, statistics.fmean(values), third)


def _rate(past: Sequence[Past]) -> float | None:
    scores = [row.score for row in past if row.score is not None]
    return statistics.fmean(scores) if len(scores) >= ENOUGH else None


def _rows(expected: Forecast) -> list[OutlookRow]:
    fewest, most = expected.rollouts
    rows = [OutlookRow("Rollouts", "rollouts", fewest, most)]
    for what, unit, found in (
        ("Tokens", "tokens", expected.tokens),
        ("Money", "usd", expected.usd),
        ("Time", "seconds", expected.seconds),
    ):
        if found is None:
            rows.append(OutlookRow(what, "none", text="not known yet"))
        else:
            rows.append(OutlookRow(what, unit, found.low, found.high))
    return rows


def _basis(past: Sequence[Past], rate: float | None) -> str:
    if len(past) < ENOUGH:
        return (
            "No past rollouts of this environment, rubric and model: tokens, money and time are "
            "known once the seed has been watched."
        )
    scored = "" if rate is None else f", mean score {rate:.2f}"
    return f"From {len(past)} past rollouts of this environment, rubric and model{scored}."
