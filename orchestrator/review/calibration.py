"""How far people and a criterion agree: which labels say something, and what they say. Pure.

A label hangs on a criterion's id and stays good when a judge is asked in better words; a verdict
hangs on the criterion's content, for other words make another judge. So a label is paired with a
verdict of the criterion as the version says it: the one of the rollout's own run if that used the
same content, else the one of the newest re-grade that did. Every label that is not used is counted
with the reason.

Several people's labels of one rollout are one: that of the majority. Intervals draw whole tasks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from orchestrator.review.calibration_criteria import CODE, CriterionSpec
from rubrics.agreement.binary import Confusion
from rubrics.agreement.bootstrap import Interval, bootstrap_interval
from rubrics.agreement.drift import Change, Mark, Window, by_time, by_version, newest_change
from rubrics.agreement.summary import (
    Agreement,
    Judged,
    Unit,
    agreement_of,
    binary_alpha,
    kappa_of,
)
from rubrics.types import State


class Unused(StrEnum):
    """Why a label says nothing of a criterion."""

    PAIRWISE = "pairwise"
    PERSON_NA = "person_na"
    OTHER_SCALE = "other_scale"
    LATER_MARK = "later_mark"
    REPLACED = "replaced"
    NO_VERDICT = "no_verdict"
    OTHER_JUDGE = "other_judge"
    ERRORED = "errored"
    VERDICT_NA = "verdict_na"
    DIVIDED = "divided"


@dataclass(frozen=True)
class Label:
    """A person's mark of this criterion."""

    id: int
    rollout: int
    task: int
    user: int
    user_name: str
    state: str
    value: float | None
    preference: str
    note: str
    scale: str | None
    """Of the criterion when it was marked; None where that version is gone."""
    is_earlier_wording: bool
    is_held_out: bool
    is_replaced: bool
    """The rollout counts no more: a retry took its place."""
    at: datetime


@dataclass(frozen=True)
class Given:
    """A verdict of the criterion, with where it came from."""

    rollout: int
    state: str
    value: float | None
    reason: str
    cites: tuple[int, ...]
    detail: Mapping[str, Any]
    judge: str
    version: str
    """`v3`, or `draft`."""
    regrade: int | None
    """None: of the rollout's own run."""
    at: datetime


@dataclass(frozen=True)
class Paired:
    """A rollout on which people and the judge can be compared."""

    rollout: int
    task: int
    person: bool
    judge: bool
    labels: tuple[Label, ...]
    given: Given

    @property
    def agrees(self) -> bool:
        return self.person == self.judge

    @property
    def is_held_out(self) -> bool:
        return self.labels[0].is_held_out


@dataclass(frozen=True)
class Member:
    """One model of a panel by itself."""

    model: str
    agreement: Agreement


@dataclass(frozen=True)
class Calibration:
    """Of one criterion and one judge."""

    criterion: CriterionSpec
    judge: str
    pairs: Sequence[Paired]
    unused: Mapping[Unused, int]
    n_labels: int
    judged: Judged
    n_earlier_wording: int = 0
    """Usable labels that were given under other words of the question."""
    all_labels: Sequence[Label] = field(default=(), repr=False)
    """Newest of each person on each rollout, usable by themselves."""

    @property
    def n(self) -> int:
        return len(self.pairs)

    @property
    def n_used(self) -> int:
        return sum(len(pair.labels) for pair in self.pairs)

    @property
    def n_held_out(self) -> int:
        return sum(pair.is_held_out for pair in self.pairs)

    @property
    def sources(self) -> Mapping[str, int]:
        """Where the verdicts came from, in words -> number of rollouts."""
        counted = Counter(
            f"re-grade {p.given.regrade}, {p.given.version}"
            if p.given.regrade
            else f"runs under {p.given.version}"
            for p in self.pairs
        )
        return dict(counted)

    @cached_property
    def agreement(self) -> Agreement:
        units = [Unit(pair.task, pair.person, pair.judge) for pair in self.pairs]
        return agreement_of(units, self.judged)

    @property
    def kappa(self) -> float | None:
        """Without the interval, which is what takes time."""
        return kappa_of(Confusion.of((pair.person, pair.judge) for pair in self.pairs))

    @property
    def disagreements(self) -> list[Paired]:
        """Newest label first."""
        found = [pair for pair in self.pairs if not pair.agrees]
        return sorted(found, key=lambda p: max(label.at for label in p.labels), reverse=True)

    @cached_property
    def people_alpha(self) -> tuple[float | None, Interval | None, int]:
        """Krippendorff's alpha of people among themselves, its interval, rollouts with several."""
        by_rollout: dict[int, list[float]] = {}
        for label in self.all_labels:
            by_rollout.setdefault(label.rollout, []).append(self._said(label))
        return _alpha([values for values in by_rollout.values() if len(values) > 1])

    @cached_property
    def alpha(self) -> tuple[float | None, Interval | None, int]:
        """The same of people and the judge together, where at least two people marked."""
        units = [
            [*(self._said(label) for label in pair.labels), float(pair.judge)]
            for pair in self.pairs
            if len(pair.labels) > 1
        ]
        return _alpha(units)

    def _said(self, label: Label) -> float:
        assert label.value is not None
        return float(self.criterion.passes(label.value))

    @cached_property
    def windows(self) -> list[Window]:
        return by_time(self._marks)

    @cached_property
    def versions(self) -> list[Window]:
        return by_version(self._marks)

    @property
    def change(self) -> Change | None:
        return newest_change(self.windows)

    @property
    def _marks(self) -> list[Mark]:
        return [
            Mark(pair.given.at, pair.given.version, pair.person, pair.judge) for pair in self.pairs
        ]

    @cached_property
    def unsteady(self) -> tuple[int, int]:
        """(verdicts whose repeats or members differed, verdicts with several calls)."""
        several = [p.given.detail for p in self.pairs if len(p.given.detail.get("calls") or ()) > 1]
        return sum(bool(detail.get("spread")) for detail in several), len(several)

    @cached_property
    def members(self) -> list[Member]:
        """The models of a panel, each against people."""
        units: dict[str, list[Unit]] = {}
        for pair in self.pairs:
            for model, value in _votes(pair.given.detail).items():
                said = self.criterion.passes(value)
                units.setdefault(model, []).append(Unit(pair.task, pair.person, said))
        if len(units) < 2:
            return []
        return [Member(model, agreement_of(u, Judged(0, 0))) for model, u in sorted(units.items())]


def calibrate(
    criterion: CriterionSpec,
    labels: Sequence[Label],
    verdicts: Mapping[int, Sequence[Given]],
    judged: Mapping[str, Judged],
) -> list[Calibration]:
    """One per judge that decided a labelled rollout, the one with most pairs first; at least one.

    `verdicts`: of this criterion's content by rollout, the newest first. `judged`: what each judge
    said of all rollouts.
    """
    judges = Counter(given.judge for each in verdicts.values() for given in each)
    # An errored verdict may name nobody; it belongs to whoever judges.
    if len(judges) > 1 and criterion.is_judge:
        judges.pop(CODE, None)
    if not judges:
        judges[next(iter(judged), "")] = 0
    found = [
        _calibration(criterion, judge, labels, verdicts, judged.get(judge, Judged(0, 0)))
        for judge in judges
    ]
    return sorted(found, key=lambda each: -each.n)


def _calibration(
    criterion: CriterionSpec,
    judge: str,
    labels: Sequence[Label],
    verdicts: Mapping[int, Sequence[Given]],
    judged: Judged,
) -> Calibration:
    unused: Counter[Unused] = Counter()
    good = _good_labels(criterion, labels, unused)
    by_rollout: dict[int, list[Label]] = {}
    for label in good:
        by_rollout.setdefault(label.rollout, []).append(label)
    pairs = []
    for rollout, own in by_rollout.items():
        given, why = _verdict_for(judge, verdicts.get(rollout, ()), criterion)
        if given is None:
            assert why is not None
            unused[why] += len(own)
            continue
        assert given.value is not None
        votes = [criterion.passes(label.value or 0.0) for label in own]
        if 2 * sum(votes) == len(votes):
            unused[Unused.DIVIDED] += len(own)
            continue
        person = 2 * sum(votes) > len(votes)
        said = criterion.passes(given.value)
        pairs.append(Paired(rollout, own[0].task, person, said, tuple(own), given))
    return Calibration(
        criterion=criterion,
        judge=judge,
        pairs=pairs,
        unused=unused,
        n_labels=len(labels),
        judged=judged,
        n_earlier_wording=sum(label.is_earlier_wording for p in pairs for label in p.labels),
        all_labels=good,
    )


def _good_labels(
    criterion: CriterionSpec, labels: Iterable[Label], unused: Counter[Unused]
) -> list[Label]:
    """Labels that say by themselves whether the criterion is met."""
    newest: dict[tuple[int, int], Label] = {}
    for label in sorted(labels, key=lambda each: (each.at, each.id)):
        if label.preference:
            unused[Unused.PAIRWISE] += 1
        elif label.is_replaced:
            unused[Unused.REPLACED] += 1
        elif label.scale is not None and label.scale != criterion.scale:
            unused[Unused.OTHER_SCALE] += 1
        else:
            if (label.rollout, label.user) in newest:
                unused[Unused.LATER_MARK] += 1
            newest[label.rollout, label.user] = label
    good = []
    for label in newest.values():
        if label.state != State.SCORED or label.value is None:
            unused[Unused.PERSON_NA] += 1
        else:
            good.append(label)
    return good


def _verdict_for(
    judge: str, given: Sequence[Given], criterion: CriterionSpec
) -> tuple[Given | None, Unused | None]:
    """The newest usable verdict of that judge, or why there is none."""
    if not given:
        return None, Unused.NO_VERDICT
    own = [g for g in given if g.judge == judge or (criterion.is_judge and g.judge == CODE)]
    if not own:
        return None, Unused.OTHER_JUDGE
    for each in own:
        if each.state == State.SCORED:
            return each, None
    if own[0].state == State.ERRORED:
        return None, Unused.ERRORED
    return None, Unused.VERDICT_NA if own[0].state == State.NOT_APPLICABLE else Unused.NO_VERDICT


def _votes(detail: Mapping[str, Any]) -> dict[str, float]:
    """Mean value of each model's calls."""
    values: dict[str, list[float]] = {}
    for call in detail.get("calls") or ():
        if isinstance(call, Mapping) and call.get("model") and call.get("value") is not None:
            values.setdefault(str(call["model"]), []).append(float(call["value"]))
    return {model: sum(each) / len(each) for model, each in values.items()}


def _alpha(units: Sequence[Sequence[float]]) -> tuple[float | None, Interval | None, int]:
    counts = [(len(unit) - round(sum(unit)), round(sum(unit))) for unit in units]
    return binary_alpha(counts), bootstrap_interval(counts, binary_alpha), len(units)
