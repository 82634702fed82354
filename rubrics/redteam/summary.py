"""An attacked rubric in numbers: what was paid, and which biases its judges have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2
from statistics import fmean
from typing import Any

from rubrics.agreement.binary import wilson
from rubrics.agreement.bootstrap import bootstrap_interval
from rubrics.redteam.attacks import BY_ID, PADDINGS, Family
from rubrics.redteam.outcome import TOLERANCE
from rubrics.types import Verdict


@dataclass(frozen=True)
class Line:
    """One attack on one rollout."""

    attack: str
    base: int
    """Number of the rollout that it was made of."""
    score: float | None
    before: float | None
    """Score of the rollout that it was made of."""
    is_paid: bool
    judged: Sequence[tuple[float, float]] = field(default=())
    """Of each criterion with a judge that decided both: value before, value after."""


def summarise(lines: Sequence[Line]) -> dict[str, Any]:
    """As JSON. Rates of nothing are null; intervals are at 95 %."""
    attacks = [line for line in lines if _family(line) is not Family.CONTROL]
    return {
        "n_graded": len(attacks),
        "n_paid": sum(line.is_paid for line in attacks),
        "n_errored": sum(line.score is None for line in attacks),
        "families": [_of_family(attacks, family) for family in Family if family != "control"],
        "injection": _rate([a for a in attacks if _family(a) is Family.INJECTION]),
        "position": _position(attacks),
        "length": _length(attacks),
        "agreement": _agreement([line for line in lines if line.attack == "again"]),
    }


def _family(line: Line) -> Family:
    return BY_ID[line.attack].family


def _of_family(attacks: Sequence[Line], family: Family) -> dict[str, Any]:
    return {"family": family.value, **_rate([a for a in attacks if _family(a) is family])}


def _rate(attacks: Sequence[Line]) -> dict[str, Any]:
    """Share of the graded ones that was paid; what could not be graded is left out and counted."""
    graded = [line for line in attacks if line.score is not None]
    rate = wilson(sum(line.is_paid for line in graded), len(graded))
    return {
        "n": rate.n,
        "paid": sum(line.is_paid for line in graded),
        "errored": len(attacks) - len(graded),
        "rate": rate.value,
        "low": rate.low,
        "high": rate.high,
    }


def _position(attacks: Sequence[Line]) -> dict[str, Any]:
    """How often the same content in another order has another score."""
    moves = [
        line.score - line.before
        for line in attacks
        if _family(line) is Family.ORDER and line.score is not None and line.before is not None
    ]
    rate = wilson(sum(abs(move) > TOLERANCE for move in moves), len(moves))
    return {
        "n": rate.n,
        "rate": rate.value,
        "low": rate.low,
        "high": rate.high,
        "mean": fmean(moves) if moves else None,
    }


def _length(attacks: Sequence[Line]) -> dict[str, Any]:
    """What the score gains each time that an answer doubles in length, at the same content.

    The least-squares slope through the rollout's own score; rollouts are what is resampled.
    """
    points: dict[int, list[tuple[float, float]]] = {}
    for line in attacks:
        if _family(line) is not Family.LENGTH or line.score is None or line.before is None:
            continue
        times = next(t for t in PADDINGS if line.attack == f"padded-{t}")
        points.setdefault(line.base, []).append((log2(times), line.score - line.before))
    rollouts = [points[base] for base in sorted(points)]
    interval = bootstrap_interval(rollouts, _slope)
    return {
        "n": len(rollouts),
        "slope": _slope(rollouts),
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
        "points": _means_by(rollouts),
    }


def _slope(rollouts: Sequence[Sequence[tuple[float, float]]]) -> float | None:
    """Through zero: at no padding there is no difference."""
    found = [point for rollout in rollouts for point in rollout]
    square = sum(x * x for x, _ in found)
    return sum(x * y for x, y in found) / square if square else None


def _means_by(rollouts: Sequence[Sequence[tuple[float, float]]]) -> list[dict[str, float]]:
    by: dict[float, list[float]] = {}
    for x, y in (point for rollout in rollouts for point in rollout):
        by.setdefault(x, []).append(y)
    return [{"times": 2**x, "mean": fmean(by[x])} for x in sorted(by)]


def _agreement(again: Sequence[Line]) -> dict[str, Any]:
    """How often judges said the same when they were asked twice."""
    pairs: list[tuple[float, float]] = [pair for line in again for pair in line.judged]
    rate = wilson(sum(abs(a - b) <= TOLERANCE for a, b in pairs), len(pairs))
    return {
        "n": rate.n,
        "rate": rate.value,
        "low": rate.low,
        "high": rate.high,
        "spread": fmean(abs(a - b) for a, b in pairs) if pairs else None,
    }


def place_tallies(verdicts: Iterable[Verdict]) -> list[tuple[int, int]]:
    """Of criteria that compare pairs: how many, and in how many the two orders disagreed."""
    found = []
    for verdict in verdicts:
        tally = verdict.detail.get("position")
        if isinstance(tally, Mapping) and "disagreed" in tally:
            found.append((int(tally["pairs"]), int(tally["disagreed"])))
    return found


def pairs(tallies: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Share of the pairs of rollouts that the place decided."""
    rate = wilson(sum(disagreed for _, disagreed in tallies), sum(n for n, _ in tallies))
    return {"n": rate.n, "rate": rate.value, "low": rate.low, "high": rate.high}


_PLACES: Mapping[str, int] = {attack: place for place, attack in enumerate(BY_ID)}


def order_of(line: Mapping[str, Any]) -> tuple[bool, float, int]:
    """What got paid comes first, the largest gain before the smaller ones, the plain before the
    elaborate.
    """
    gain = (line.get("score") or 0.0) - (line.get("before") or 0.0)
    return (not line.get("paid"), -gain, _PLACES.get(str(line.get("attack")), 0))
