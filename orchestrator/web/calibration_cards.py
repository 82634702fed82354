"""What the calibration page says of a criterion, in words and coordinates. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.grading.models import Alignment, CriterionPolicy
from orchestrator.grading.policies import Bar
from orchestrator.review.alignment import offered_question, why_not
from orchestrator.review.badges import Badge, badge_of, is_suggested
from orchestrator.review.calibration import Calibration, Unused
from orchestrator.review.calibration_queries import Wording
from rubrics.agreement.binary import Rate
from rubrics.agreement.bootstrap import Interval

WORDS: Mapping[Unused, str] = {
    Unused.NO_VERDICT: "have no verdict of the criterion as {version} words it; re-grade those "
    "rollouts under {version}",
    Unused.ERRORED: "meet an errored verdict, which says nothing of agreement",
    Unused.VERDICT_NA: "meet a verdict that says not applicable",
    Unused.OTHER_JUDGE: "were judged by another model",
    Unused.PERSON_NA: "say that the criterion does not apply",
    Unused.DIVIDED: "are of rollouts on which people are divided half and half",
    Unused.PAIRWISE: "compare two rollouts: which is better, not whether one passes",
    Unused.OTHER_SCALE: "were given when the criterion had another scale or sign",
    Unused.LATER_MARK: "were replaced by a later mark of the same person",
    Unused.REPLACED: "are of a rollout that a retry has replaced",
}
VERDICTS: Mapping[str, tuple[str, str]] = {
    "better": ("pass", "better on the labels kept apart"),
    "worse": ("fail", "worse on the labels kept apart"),
    "unclear": ("skip", "no difference that these labels can show"),
    "unsure": ("error", "too many without a verdict"),
}
WIDTH, HEIGHT = 260, 54
"""Of the line of agreement, in user units."""


@dataclass(frozen=True)
class Place:
    """Kappa on a line from -1 to 1 that is 200 units long."""

    value: float | None
    low: float | None
    high: float | None
    bar: float


@dataclass(frozen=True)
class Line:
    """Agreement by window, oldest left; the height is the share, 0 to 1."""

    points: Sequence[tuple[float, float]]
    path: str
    summary: str


@dataclass(frozen=True)
class RateLine:
    name: str
    about: str
    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class AlignCard:
    alignment: Alignment
    question: str
    look: str
    verdict: str

    @property
    def is_running(self) -> bool:
        return self.alignment.state in ("queued", "running")


@dataclass(frozen=True)
class CalibrationCard:
    found: Calibration
    badge: Badge
    policy: CriterionPolicy | None
    is_suggested: bool
    place: Place
    rates: Sequence[RateLine]
    unused: Sequence[tuple[int, str]]
    line: Line | None
    wordings: Sequence[Wording]
    aligned: Sequence[AlignCard]
    align_problem: str
    """Why no better question can be asked for yet."""
    is_first: bool
    """Of the criterion; others are of other judges."""

    @property
    def key(self) -> str:
        return f"{self.found.criterion.id}-{self.found.judge or 'none'}"


def card_of(
    found: Calibration,
    *,
    bar: Bar,
    policy: CriterionPolicy | None,
    version: int,
    alignments: Sequence[Alignment],
    wordings: Sequence[Wording],
    is_first: bool,
) -> CalibrationCard:
    why = policy.reason if policy is not None and policy.is_barred else None
    return CalibrationCard(
        found=found,
        badge=badge_of(found, bar, why),
        policy=policy,
        is_suggested=is_suggested(found, bar, why),
        place=_place(found, bar),
        rates=_rates(found),
        unused=[
            (n, words.format(version=f"v{version}"))
            for reason, words in WORDS.items()
            if (n := found.unused.get(reason, 0))
        ],
        line=_line(found),
        wordings=wordings if is_first else (),
        aligned=[_align_card(each) for each in alignments] if is_first else [],
        align_problem=why_not(found),
        is_first=is_first,
    )


def _place(found: Calibration, bar: Bar) -> Place:
    def x(value: float) -> float:
        return round(100 + 100 * max(-1.0, min(1.0, value)), 1)

    interval = found.agreement.kappa_interval
    return Place(
        None if found.kappa is None else x(found.kappa),
        None if interval is None else x(interval.low),
        None if interval is None else x(interval.high),
        x(bar.kappa),
    )


def _rates(found: Calibration) -> list[RateLine]:
    agreement = found.agreement
    confusion = agreement.confusion

    def of(name: str, about: str, rate: Rate) -> RateLine:
        known = rate.value is not None
        low, high = (rate.low, rate.high) if known else (None, None)
        return RateLine(name, about, rate.value, low, high, rate.n)

    judged = RateLine(
        "Pass rate as judged",
        "of all verdicts of this judge",
        agreement.judged.rate,
        None,
        None,
        agreement.judged.n,
    )
    between: Interval | None = agreement.corrected_interval
    corrected = RateLine(
        "Corrected pass rate",
        "what people would have passed, from both rates",
        agreement.corrected,
        between.low if between and agreement.corrected is not None else None,
        between.high if between and agreement.corrected is not None else None,
        agreement.judged.n,
    )
    return [
        of("True-positive rate", "passed by people, passed here too", confusion.true_positive_rate),
        of("True-negative rate", "failed by people, failed here too", confusion.true_negative_rate),
        judged,
        corrected,
    ]


def _line(found: Calibration) -> Line | None:
    windows = found.windows
    if len(windows) < 2:
        return None
    step = (WIDTH - 16) / (len(windows) - 1)
    shares = [window.agreement.value or 0.0 for window in windows]
    points = [
        (round(8 + i * step, 1), round(HEIGHT - 6 - share * (HEIGHT - 12), 1))
        for i, share in enumerate(shares)
    ]
    said = ", ".join(f"{share:.0%} of {w.n}" for share, w in zip(shares, windows, strict=True))
    return Line(
        points, "M " + " L ".join(f"{x} {y}" for x, y in points), f"Agreement by window: {said}"
    )


def _align_card(alignment: Alignment) -> AlignCard:
    look, words = VERDICTS.get(str(alignment.result.get("verdict", "")), ("skip", ""))
    return AlignCard(alignment, offered_question(alignment), look, words)
