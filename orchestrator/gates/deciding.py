"""The decision of a gate from the pairs that exist. Pure: equal pairs give equal decisions.

Order of the answers: too few scores is `infrastructure`, whatever the scores say. A required
criterion that failed, or a task below its floor, is `regressed` without any statistics: those are
rules of the team, not estimates. Then the test of `orchestrator.gates.measuring`, at the level of
this look: a p-value decides when it is at or below it, so that all looks together are wrong with
probability α at most. A difference that is shown to be smaller than the one that matters ends the
gate as `inconclusive` before the budget is spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from fractions import Fraction
from statistics import fmean
from typing import Any

from optimizer.statistics.betting import decimal
from optimizer.statistics.paired import Pair
from orchestrator.gates.measuring import (
    Measured,
    Needs,
    Units,
    interval,
    is_above,
    is_below,
    measure,
    needs,
    p_above,
    p_below,
)
from orchestrator.gates.policy import Plan, Policy

SHOWN = 5
"""Tasks that a sentence names."""


class Verdict(StrEnum):
    BETTER = "better"
    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    INFRASTRUCTURE = "infrastructure"


class Reason(StrEnum):
    DIFFERENCE = "difference"
    """The test crossed its boundary."""
    REQUIRED = "required"
    """A required criterion failed, or was never judged."""
    TASK_FLOOR = "task_floor"
    SMALL = "small"
    """Any difference is shown to be smaller than the one that matters."""
    BUDGET = "budget"
    """Of rollouts or money."""
    COVERAGE = "coverage"
    SAME = "same"
    """Both sides are the same harness and model: nothing was run."""
    FAILED = "failed"
    """A run came to nothing."""


@dataclass(frozen=True)
class Required:
    """A criterion that must be met: how the candidate's rollouts did."""

    criterion: str
    failed: int
    judged: int


@dataclass(frozen=True)
class Decision:
    verdict: Verdict | None
    """None: go on to the next look."""
    reason: Reason | None
    sentence: str
    look: int
    """Counted from 1."""
    level: float
    """One-sided level of this look."""
    p_better: float | None
    p_worse: float | None
    low: float | None
    """Of the interval that belongs to the level of this look; None where it was not asked for."""
    high: float | None
    measured: Measured
    needs: Needs

    def to_json(self) -> dict[str, Any]:
        told = asdict(self)
        measured, needed = told.pop("measured"), told.pop("needs")
        return {**told, **measured, "coverage": self.measured.coverage, "needs": needed}


def decide(
    policy: Policy,
    plan: Plan,
    look: int,
    pairs: Sequence[Pair],
    *,
    required: Sequence[Required] = (),
    no_more: str = "",
    with_interval: bool = True,
) -> Decision:
    """The answer at the look of that number, counted from 1, over all pairs so far.

    `no_more` says why no further look can be had although the plan has one. The interval takes
    most of the time. Raises StatisticsDomain for scores not in 0 to 1.
    """
    found, units = measure(pairs), Units.of(pairs)
    level = plan.looks[look - 1].level
    margin = decimal(policy.margin)
    better = p_above(units, margin) if units.values else None
    worse = p_below(units, -margin) if units.values else None
    verdict: Verdict | None = None
    reason: Reason | None = None
    text = ""
    if found.coverage < policy.coverage:
        verdict, reason, text = Verdict.INFRASTRUCTURE, Reason.COVERAGE, _too_few(policy, found)
    elif failed := [rule for rule in required if rule.failed]:
        verdict, reason, text = Verdict.REGRESSED, Reason.REQUIRED, _failed(failed)
    elif worse is not None and worse <= level:
        verdict, reason = Verdict.REGRESSED, Reason.DIFFERENCE
    elif better is not None and better <= level:
        verdict, reason = Verdict.BETTER, Reason.DIFFERENCE
    elif _is_small(units, decimal(policy.effect), level):
        verdict, reason = Verdict.INCONCLUSIVE, Reason.SMALL
        text = f"Any difference is smaller than {policy.effect:g}, the smallest that matters."
    elif look == len(plan.looks) or no_more:
        verdict, reason = Verdict.INCONCLUSIVE, Reason.BUDGET
        text = no_more or "The budget of rollouts is spent."
    if verdict in (Verdict.BETTER, Verdict.INCONCLUSIVE):
        # Nothing passes over a rule of the team.
        if silent := [rule.criterion for rule in required if not rule.judged]:
            verdict, reason = Verdict.INFRASTRUCTURE, Reason.REQUIRED
            text = f"Required, but never judged: {', '.join(silent)}."
        elif low := _below_floor(policy, pairs):
            verdict, reason, text = Verdict.REGRESSED, Reason.TASK_FLOOR, low
    ends = interval(units, level) if with_interval and units.values else (None, None)
    return Decision(
        verdict=verdict,
        reason=reason,
        sentence=text or _difference(found, verdict),
        look=look,
        level=level,
        p_better=better,
        p_worse=worse,
        low=ends[0],
        high=ends[1],
        measured=found,
        needs=_needs(policy, pairs, found) if verdict is Verdict.INCONCLUSIVE else Needs(),
    )


def _is_small(units: Units, effect: Fraction, level: float) -> bool:
    if not units.values or not is_below(units, effect, level):
        return False
    return is_above(units, -effect, level)


def _needs(policy: Policy, pairs: Sequence[Pair], found: Measured) -> Needs:
    beyond = abs(found.mean or 0.0) - policy.margin
    return needs(pairs, beyond=beyond, alpha=policy.alpha, power=policy.power)


def _difference(found: Measured, verdict: Verdict | None) -> str:
    if found.mean is None or verdict is None:
        return ""
    word = "Better" if verdict is Verdict.BETTER else "Worse"
    size = f"{100 * abs(found.mean):.1f} points"
    return f"{word} by {size} over {found.tasks} tasks and {found.pairs} pairs."


def _too_few(policy: Policy, found: Measured) -> str:
    return (
        f"Only {found.pairs} of {found.scheduled} pairs have two scores ({found.coverage:.0%}); "
        f"{policy.coverage:.0%} are needed for a decision. Without a score: {found.lost_base} "
        f"rollouts of the baseline, {found.lost_candidate} of the candidate."
    )


def _failed(rules: Sequence[Required]) -> str:
    told = [f"{rule.criterion} (failed {rule.failed} of {rule.judged})" for rule in rules]
    return f"Required of every rollout of the candidate, but not met: {', '.join(told)}."


def _below_floor(policy: Policy, pairs: Sequence[Pair]) -> str:
    if policy.task_floor is None:
        return ""
    by_task: dict[str, list[float]] = {}
    for pair in pairs:
        if pair.candidate is not None:
            by_task.setdefault(pair.task, []).append(pair.candidate)
    low = sorted(task for task, got in by_task.items() if fmean(got) < policy.task_floor)
    if not low:
        return ""
    more = f" and {len(low) - SHOWN} more" if len(low) > SHOWN else ""
    return (
        f"{len(low)} of {len(by_task)} tasks are below {policy.task_floor:g} on average with the "
        f"candidate: {', '.join(low[:SHOWN])}{more}."
    )
