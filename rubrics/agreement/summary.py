"""What labels say of a judge, with intervals: kappa, rates, and what people would have passed.

Rollouts of one task hang together, so intervals draw tasks, each with all its rollouts. The counts
of a task say everything that these statistics need, which makes a resample a sum of counts.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from rubrics.agreement.binary import Confusion, corrected_pass_rate
from rubrics.agreement.bootstrap import RESAMPLES, Interval, bootstrap_interval, quantile


@dataclass(frozen=True)
class Unit:
    """A rollout that people marked and the judge decided."""

    cluster: Hashable
    """What hangs together, such as the task."""
    person: bool
    judge: bool


@dataclass(frozen=True)
class Judged:
    """What the judge said of all rollouts, marked or not."""

    n_passed: int
    n: int

    @property
    def rate(self) -> float | None:
        return self.n_passed / self.n if self.n else None


@dataclass(frozen=True)
class Agreement:
    confusion: Confusion
    kappa: float | None
    kappa_interval: Interval | None
    judged: Judged
    corrected: float | None
    """Share that people would have passed; None where labels cannot tell."""
    corrected_interval: Interval | None


def kappa_of(confusion: Confusion) -> float | None:
    """Cohen's kappa of the counts; None where chance alone would agree always, or without any."""
    n = confusion.n
    if not n:
        return None
    person = confusion.true_positive + confusion.false_negative
    judge = confusion.true_positive + confusion.false_positive
    # In whole numbers, so that no rounding hides a 0 in the denominator.
    expected_disagreement = person * (n - judge) + (n - person) * judge
    if expected_disagreement == 0:
        return None
    observed_disagreement = confusion.false_negative + confusion.false_positive
    return 1 - observed_disagreement * n / expected_disagreement


def binary_alpha(units: Sequence[tuple[int, int]]) -> float | None:
    """Krippendorff's alpha of yes and no, from the numbers of no and yes in each unit.

    What `krippendorff_alpha` gives for the values themselves, in one pass: fit to be resampled.
    """
    no = yes = 0
    disagreement = 0.0
    for n, y in units:
        if n + y > 1:
            no += n
            yes += y
            disagreement += 2 * n * y / (n + y - 1)
    if not no or not yes:
        return None
    return 1 - disagreement * (no + yes - 1) / (2 * no * yes)


def agreement_of(units: Sequence[Unit], judged: Judged, *, seed: int = 0) -> Agreement:
    """`judged`: verdicts of the same judge on the rollouts that the corrected rate is about."""
    confusion = Confusion.of((unit.person, unit.judge) for unit in units)
    clusters = _clusters(units)
    rate = judged.rate
    return Agreement(
        confusion=confusion,
        kappa=kappa_of(confusion),
        kappa_interval=bootstrap_interval(clusters, lambda c: kappa_of(total(c)), seed=seed),
        judged=judged,
        corrected=None if rate is None else corrected_pass_rate(rate, confusion),
        corrected_interval=_corrected_interval(clusters, judged, seed),
    )


def total(counts: Iterable[Confusion]) -> Confusion:
    tp = fn = fp = tn = 0
    for each in counts:
        tp += each.true_positive
        fn += each.false_negative
        fp += each.false_positive
        tn += each.true_negative
    return Confusion(tp, fn, fp, tn)


def _clusters(units: Sequence[Unit]) -> list[Confusion]:
    found: dict[Hashable, list[tuple[bool, bool]]] = {}
    for unit in units:
        found.setdefault(unit.cluster, []).append((unit.person, unit.judge))
    return [Confusion.of(pairs) for pairs in found.values()]


def _corrected_interval(
    clusters: Sequence[Confusion], judged: Judged, seed: int, level: float = 0.95
) -> Interval | None:
    """Both sources of doubt: the labels are drawn again, and so is the judge's own rate (from the
    beta distribution of a share with Jeffreys' prior).

    The three ways are drawn independently, though labelled rollouts are among the judged ones: the
    interval is a little too wide, never too narrow for that.
    """
    if len(clusters) < 2 or not judged.n:
        return None
    draw = random.Random(seed)
    found = []
    for _ in range(RESAMPLES):
        rate = draw.betavariate(judged.n_passed + 0.5, judged.n - judged.n_passed + 0.5)
        value = corrected_pass_rate(rate, total(draw.choices(clusters, k=len(clusters))))
        if value is not None:
            found.append(value)
    if 2 * len(found) < RESAMPLES:
        return None
    found.sort()
    return Interval(
        quantile(found, (1 - level) / 2),
        quantile(found, (1 + level) / 2),
        level,
        RESAMPLES - len(found),
    )
