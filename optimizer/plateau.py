"""The plateau rule of the climb: where is the next unit of budget worth more, harness or weights?

Harness: what the fitted effects leave open. An edit that is not in the harness with posterior
N(m, s²) is worth E[max(β, 0)] = s·φ(m/s) + m·Φ(m/s) (expected improvement, Jones et al., 1998) if
the next search could settle it; what new proposals bring is judged by those of before: the share
that was kept, times what a kept one was worth. Together they are discounted by what the last search
really certified against what it had estimated.

Weights: past training rungs, each a gain and its cost, shrunk towards a prior (normal, both known
variances); without any rung the prior alone speaks.

Both are divided by what they cost. The advice says so in one sentence; a person can overrule it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

PRIOR_GAIN, PRIOR_SD = 0.05, 0.08
"""Of a training rung before any was seen, in score (0 to 1)."""
RUNG_SD = 0.04
"""How exactly one rung's measured gain tells what the next one brings."""
WORTH_WHILE = 0.01
"""A gain that is not expected to reach this is no reason to go on."""
Z_90 = 1.2816
STANDARD = NormalDist()


class Next(StrEnum):
    HARNESS = "harness"
    WEIGHTS = "weights"
    STOP = "stop"


@dataclass(frozen=True)
class Effect:
    """The fitted effect of an edit, score 0 to 1."""

    mean: float
    sd: float
    is_in: bool
    """Whether the harness has it already."""


@dataclass(frozen=True)
class HarnessOutlook:
    effects: Sequence[Effect]
    cost: float
    """Of the next search, in the unit of cost; above 0."""
    new_edits: float = 0.0
    """How many proposals the next search may expect that this one had not."""
    estimated: float | None = None
    """What the last search believed its winner to gain, and …"""
    certified: float | None = None
    """… what fresh pairs showed."""


@dataclass(frozen=True)
class TrainingRung:
    gain: float
    cost: float


@dataclass(frozen=True)
class WeightsOutlook:
    rungs: Sequence[TrainingRung]
    cost: float
    """Of the next rung; above 0."""
    signal: float = 1.0
    """Share of task groups whose rollouts differ in score, 0 to 1: the others teach GRPO nothing.
    """


@dataclass(frozen=True)
class Outlook:
    gain: float
    """Expected, score 0 to 1."""
    low: float
    high: float
    """80 % interval."""
    rate: float
    """Gain per unit of cost."""


@dataclass(frozen=True)
class Advice:
    next: Next
    harness: Outlook | None
    weights: Outlook | None
    reason: str


def weigh(
    harness: HarnessOutlook | None,
    weights: WeightsOutlook | None,
    *,
    headroom: float | None = None,
    unit: str = "rollout",
) -> Advice:
    """None for a way that is closed (no trainable model, nothing left to propose).

    `headroom` is what the score lacks of 1, if it is known: no gain can be larger, and one that
    would use much of it meets the tasks that are hard for everything.
    """
    h = None if harness is None else _within(headroom, harness_outlook(harness), harness.cost)
    w = None if weights is None else _within(headroom, weights_outlook(weights), weights.cost)
    best = max((o for o in (h, w) if o is not None), key=lambda o: o.rate, default=None)
    if best is None or max(o.gain for o in (h, w) if o is not None) < WORTH_WHILE:
        chosen = Next.STOP
    else:
        chosen = Next.HARNESS if best is h else Next.WEIGHTS
    return Advice(chosen, h, w, _reason(chosen, h, w, unit))


def harness_outlook(outlook: HarnessOutlook) -> Outlook:
    open_edits = [e for e in outlook.effects if not e.is_in]
    kept = [e for e in outlook.effects if e.is_in]
    gain = math.fsum(expected_improvement(e.mean, e.sd) for e in open_edits)
    if outlook.effects:
        share = len(kept) / len(outlook.effects)
        worth = math.fsum(max(e.mean, 0.0) for e in kept) / len(kept) if kept else 0.0
        gain += outlook.new_edits * share * worth
    trust = _trust(outlook)
    spread = math.sqrt(math.fsum(e.sd**2 * STANDARD.cdf(e.mean / e.sd) for e in open_edits if e.sd))
    gain, spread = gain * trust, spread * trust
    return Outlook(gain, max(0.0, gain - Z_90 * spread), gain + Z_90 * spread, gain / outlook.cost)


def weights_outlook(outlook: WeightsOutlook) -> Outlook:
    precision = 1.0 / PRIOR_SD**2 + len(outlook.rungs) / RUNG_SD**2
    total = PRIOR_GAIN / PRIOR_SD**2 + math.fsum(r.gain for r in outlook.rungs) / RUNG_SD**2
    mean, sd = total / precision, math.sqrt(1.0 / precision)
    gain, spread = mean * outlook.signal, sd * outlook.signal
    return Outlook(gain, gain - Z_90 * spread, gain + Z_90 * spread, gain / outlook.cost)


def _within(headroom: float | None, outlook: Outlook, cost: float) -> Outlook:
    """Gains saturate at the headroom H: g becomes H·(1 − exp(−g/H))."""
    if headroom is None:
        return outlook

    def saturated(gain: float) -> float:
        if gain <= 0.0:
            return gain
        return headroom * (1.0 - math.exp(-gain / headroom)) if headroom > 0.0 else 0.0

    gain = saturated(outlook.gain)
    return Outlook(gain, saturated(outlook.low), saturated(outlook.high), gain / cost)


def expected_improvement(mean: float, sd: float) -> float:
    """E[max(β, 0)] of a normal β."""
    if sd <= 0.0:
        return max(mean, 0.0)
    z = mean / sd
    return sd * STANDARD.pdf(z) + mean * STANDARD.cdf(z)


def _trust(outlook: HarnessOutlook) -> float:
    """Certified over estimated of the last search, 0 to 1; 1 where nothing was certified yet."""
    if not outlook.estimated or outlook.certified is None or outlook.estimated <= 0:
        return 1.0
    return min(1.0, max(0.0, outlook.certified / outlook.estimated))


def _reason(chosen: Next, h: Outlook | None, w: Outlook | None, unit: str) -> str:
    parts = []
    for name, outlook in (("another harness search", h), ("training the weights", w)):
        if outlook is None:
            parts.append(f"{name} is not possible here")
        else:
            parts.append(
                f"{name} promises {_points(outlook.gain)} points "
                f"[{_points(outlook.low)}, {_points(outlook.high)}], "
                f"{_points(1000 * outlook.rate)} per 1,000 {unit}s"
            )
    words = {
        Next.HARNESS: "Harness next",
        Next.WEIGHTS: "Weights next",
        Next.STOP: "Nothing is expected to gain a point",
    }
    return f"{words[chosen]}: {'; '.join(parts)}."


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")
