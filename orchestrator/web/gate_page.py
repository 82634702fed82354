"""What the pages of gates show: the claim, the evidence of each look, and what is still to come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.gates.deciding import Verdict
from orchestrator.gates.models import Gate, GateRun
from orchestrator.gates.policy import Policy
from orchestrator.gates.queries import Spent, plan_of, policy_of, spent_by

CLAIMS = {
    Verdict.BETTER: "The change is better",
    Verdict.REGRESSED: "The change is worse",
    Verdict.INCONCLUSIVE: "No clear difference",
    Verdict.INFRASTRUCTURE: "Not decided: infrastructure",
}
SOURCES = (
    ("pull_request", "Pull request"),
    ("branch", "Branch"),
    ("commit", "Commit"),
    ("url", "Address"),
)


@dataclass(frozen=True)
class GateCard:
    gate: Gate
    headline: str
    decision: Mapping[str, Any] | None

    @property
    def is_told(self) -> bool:
        """Whether there is a difference to show: too few scores say nothing of the change."""
        has_mean = self.decision is not None and self.decision["mean"] is not None
        return has_mean and self.gate.verdict != Verdict.INFRASTRUCTURE

    @property
    def is_clear(self) -> bool:
        return self.is_told and self.gate.verdict in (Verdict.BETTER, Verdict.REGRESSED)


@dataclass(frozen=True)
class LookRow:
    number: int
    replicates: int
    rollouts: int
    level: float
    decision: Mapping[str, Any] | None
    """None: it is to come, or was not needed."""
    runs: Sequence[GateRun]
    is_running: bool


@dataclass(frozen=True)
class GateView:
    card: GateCard
    policy: Policy
    spent: Spent
    most: int
    """Rollouts that it may ask for in all."""
    share: float
    """Of them, 0 to 1, that have ended."""
    looks: Sequence[LookRow]
    visible: str
    """Points of difference that the pairs find with the policy's power; empty where decided."""
    source: Sequence[tuple[str, str]]
    """Where the change comes from: word and text."""


def card_of(gate: Gate) -> GateCard:
    return GateCard(gate, _headline(gate), gate.decisions[-1] if gate.decisions else None)


def view_of(gate: Gate) -> GateView:
    plan, spent = plan_of(gate), spent_by(gate)
    runs: dict[int, list[GateRun]] = {}
    for asked in gate.gate_runs.select_related("run"):
        runs.setdefault(asked.look, []).append(asked)
    looks = [
        LookRow(
            number=number,
            replicates=replicates,
            rollouts=2 * plan.tasks * replicates,
            level=look.level,
            decision=gate.decisions[number - 1] if number <= len(gate.decisions) else None,
            runs=runs.get(number, []),
            is_running=number == len(gate.decisions) + 1 and number in runs and not gate.has_ended,
        )
        for number, (replicates, look) in enumerate(
            zip(plan.replicates, plan.looks, strict=True), start=1
        )
    ]
    return GateView(
        card=card_of(gate),
        policy=policy_of(gate),
        spent=spent,
        most=plan.rollouts,
        share=spent.rollouts / plan.rollouts,
        looks=looks,
        visible=_visible(gate),
        source=[(word, gate.source[key]) for key, word in SOURCES if gate.source.get(key)],
    )


def _visible(gate: Gate) -> str:
    needs = gate.decisions[-1]["needs"] if gate.decisions else {}
    return f"{100 * needs['visible']:.1f}" if needs.get("visible") else ""


def _headline(gate: Gate) -> str:
    if gate.verdict:
        return CLAIMS[Verdict(gate.verdict)]
    if gate.has_ended:
        return "Cancelled without a verdict"
    return "Being decided"
