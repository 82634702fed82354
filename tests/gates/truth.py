"""Simulated pull requests whose true effect is known, through the gate's own decision.

Each has tasks of different difficulty and an effect that differs by task; scores are passes and
failures. A share of rollouts is lost to errors.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from optimizer.statistics.paired import Pair
from orchestrator.gates.deciding import Reason, Verdict, decide
from orchestrator.gates.policy import Policy, plan_for


@dataclass
class Truth:
    """What gates said of pull requests with one true effect."""

    effect: float
    verdicts: Counter[str] = field(default_factory=Counter)
    small: int = 0
    rollouts: list[int] = field(default_factory=list)
    plain: Counter[str] = field(default_factory=Counter)
    """What a gate says that runs each task once and compares two means."""

    @property
    def n(self) -> int:
        return self.verdicts.total()

    @property
    def wrong(self) -> float:
        return self._share(self.verdicts)

    @property
    def plain_wrong(self) -> float:
        return self._share(self.plain)

    def _share(self, said: Counter[str]) -> float:
        bad = 0
        if self.effect <= 0:
            bad += said[Verdict.BETTER]
        if self.effect >= 0:
            bad += said[Verdict.REGRESSED]
        return bad / said.total()

    @property
    def right(self) -> float:
        word = Verdict.BETTER if self.effect > 0 else Verdict.REGRESSED
        return self.verdicts[word] / self.n if self.effect else 0.0

    @property
    def mean_rollouts(self) -> float:
        return sum(self.rollouts) / len(self.rollouts)


def simulate(
    effect: float,
    *,
    n: int,
    policy: Policy,
    tasks: int = 40,
    spread: float = 0.15,
    lost: float = 0.02,
    threshold: float = 0.0,
    seed: int = 1,
) -> Truth:
    """`spread` is that of the effect between tasks; `threshold` that of the plain gate."""
    assert tasks % 2 == 0
    truth, plan = Truth(effect), plan_for(policy, tasks)
    for number in range(n):
        draw = random.Random(f"{seed}-{effect}-{number}")
        pairs = _pull_request(draw, effect, tasks, plan.replicates[-1], spread, lost)
        decision = None
        for look, replicates in enumerate(plan.replicates, start=1):
            seen = pairs[: tasks * replicates]
            decision = decide(policy, plan, look, seen, with_interval=False)
            if decision.verdict is not None:
                break
        assert decision is not None and decision.verdict is not None
        truth.verdicts[decision.verdict] += 1
        truth.small += decision.reason is Reason.SMALL
        truth.rollouts.append(2 * decision.measured.scheduled)
        truth.plain[_plain(pairs[:tasks], threshold)] += 1
    return truth


def _pull_request(
    draw: random.Random, effect: float, tasks: int, replicates: int, spread: float, lost: float
) -> list[Pair]:
    """All pairs that its gate could ask for, replicate by replicate."""
    bases = [draw.uniform(0.25, 0.75) for _ in range(tasks)]
    # Two by two against one another, so that the mean effect is exactly what was asked for; no
    # probability leaves 0 to 1.
    half = [draw.uniform(-spread, spread) for _ in range(tasks // 2)]
    shifts = [*half, *(-shift for shift in half)]
    after = [base + effect + shift for base, shift in zip(bases, shifts, strict=True)]
    assert min(after) >= 0.0 and max(after) <= 1.0

    def score(p: float) -> float | None:
        return None if draw.random() < lost else float(draw.random() < p)

    return [
        Pair(f"t{task}", score(bases[task]), score(after[task]))
        for _ in range(replicates)
        for task in range(tasks)
    ]


def _plain(pairs: list[Pair], threshold: float) -> str:
    base = [pair.base for pair in pairs if pair.base is not None]
    candidate = [pair.candidate for pair in pairs if pair.candidate is not None]
    difference = sum(candidate) / len(candidate) - sum(base) / len(base)
    if difference > threshold:
        return Verdict.BETTER
    if difference < -threshold:
        return Verdict.REGRESSED
    return Verdict.INCONCLUSIVE
