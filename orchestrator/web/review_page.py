"""A review item as it is shown: what may be seen of it, the form's state, and agreement.

Pure but for the rows that it is given. While a queue is blind, nothing that a rollout was graded
with reaches the page: no verdict, no score, no reward.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orchestrator.review.marks import Mark
from orchestrator.review.models import Annotation, QueueMode, ReviewItem, ReviewQueue
from orchestrator.review.scales import Choice, MarkScale
from orchestrator.web.trace import EventLike

SEEN_BLIND = frozenset(
    {"rollout.started", "told", "action", "observation", "not_sent", "rollout.restarted"}
)
"""Kinds that tell what happened and not what it was worth. Others are left out until done."""

PAIR = (
    Choice("a", "left", "A", "the left one is better"),
    Choice("e", "e", "equal", "neither is better"),
    Choice("b", "right", "B", "the right one is better"),
)


@dataclass
class _Seen:
    seq: int
    kind: str
    payload: Any
    at: datetime


def without_grades(events: Iterable[EventLike]) -> list[EventLike]:
    """The events that a reviewer may see before they have marked."""
    shown: list[EventLike] = []
    for event in events:
        if event.kind not in SEEN_BLIND:
            continue
        payload = event.payload
        if event.kind == "observation" and isinstance(payload, dict):
            kept = ("step", "segments", "exit_status", "truncated", "latency_s", "refused")
            payload = {key: payload[key] for key in kept if key in payload}
        shown.append(_Seen(event.seq, event.kind, payload, event.at))
    return shown


@dataclass(frozen=True)
class Asked:
    """One criterion in the form."""

    number: int
    scale: MarkScale
    choices: Sequence[Choice]
    said: str
    note: str
    error: str = ""


def asked(
    queue: ReviewQueue,
    item: ReviewItem,
    scales: Sequence[MarkScale],
    own: Mapping[str, Annotation],
    sent: Mapping[str, Mark] | None = None,
    *,
    errors: bool = False,
) -> list[Asked]:
    """The form: what was sent, else what is stored, else empty."""
    found = []
    for number, scale in enumerate(scales, 1):
        mark = own.get(scale.id)
        said, note = "", ""
        if sent is not None:
            got = sent.get(scale.id, Mark(""))
            said, note = _side(item, got.said) if is_pair(queue) else got.said, got.note
        elif mark is not None:
            said, note = _said(queue, item, scale, mark), mark.note
        missing = errors and not said
        found.append(
            Asked(
                number=number,
                scale=scale,
                choices=PAIR if is_pair(queue) else scale.choices,
                said=said,
                note=note,
                error="not marked yet" if missing else "",
            )
        )
    return found


def is_pair(queue: ReviewQueue) -> bool:
    return queue.mode == QueueMode.PAIRWISE


def _said(queue: ReviewQueue, item: ReviewItem, scale: MarkScale, mark: Annotation) -> str:
    if is_pair(queue):
        return _side(item, mark.preference)
    return scale.said_of(mark.state, mark.value)


def _side(item: ReviewItem, preference: str) -> str:
    """`a` or `b` of the rollouts as the side it is shown on."""
    sides = {"a": "right", "b": "left"} if item.is_swapped else {"a": "left", "b": "right"}
    return sides.get(preference, preference)


def preference_of(item: ReviewItem, side: str) -> str:
    """What the form calls left or right, as `a` or `b` of the rollouts."""
    sides = {"left": "b", "right": "a"} if item.is_swapped else {"left": "a", "right": "b"}
    return sides.get(side, side)


def read_marks(
    queue: ReviewQueue, item: ReviewItem | None, data: Mapping[str, str]
) -> dict[str, Mark]:
    """The form's fields `mark-<criterion>` and `note-<criterion>`."""
    found = {}
    for name, value in data.items():
        if not name.startswith("mark-"):
            continue
        criterion = name.removeprefix("mark-")
        said = value.strip()
        if is_pair(queue) and item is not None:
            said = preference_of(item, said)
        found[criterion] = Mark(said, data.get(f"note-{criterion}", ""))
    for name, value in data.items():
        criterion = name.removeprefix("note-")
        if name.startswith("note-") and criterion not in found and value.strip():
            found[criterion] = Mark("", value)
    return found


@dataclass(frozen=True)
class Agreement:
    """What the judge and the people say of one criterion."""

    name: str
    mine: str
    my_note: str
    judge: str
    """What the rubric's verdict says; why there is none where it has no value."""
    judge_reason: str
    agrees: bool | None
    """Both pass or both do not; None where one of them says nothing to compare."""
    others: Sequence[tuple[str, str, str]] = ()
    """(who, what, note)."""


def agreements(
    queue: ReviewQueue,
    item: ReviewItem,
    scales: Sequence[MarkScale],
    marks: Mapping[int, Mapping[str, Annotation]],
    verdicts: Mapping[int, Mapping[str, Any]],
    user_id: int,
    names: Mapping[int, str],
) -> list[Agreement]:
    own = marks.get(user_id, {})
    found = []
    for scale in scales:
        mine = own.get(scale.id)
        if is_pair(queue):
            judge, reason, agrees = _pair_verdict(item, scale, verdicts, mine)
        else:
            judge, reason, agrees = _verdict(scale, verdicts.get(item.rollout_id, {}), mine)
        found.append(
            Agreement(
                name=scale.name,
                mine=_label(queue, item, scale, mine) if mine else "",
                my_note=mine.note if mine else "",
                judge=judge,
                judge_reason=reason,
                agrees=agrees,
                others=[
                    (names.get(who, "somebody"), _label(queue, item, scale, theirs), theirs.note)
                    for who, all_of in marks.items()
                    if who != user_id and (theirs := all_of.get(scale.id)) is not None
                ],
            )
        )
    return found


def _label(queue: ReviewQueue, item: ReviewItem, scale: MarkScale, mark: Annotation) -> str:
    if is_pair(queue):
        return _side_word(_side(item, mark.preference))
    return scale.label_of(mark.state, mark.value)


def _side_word(side: str) -> str:
    return {"left": "A better", "right": "B better"}.get(side, "equal")


NO_VERDICT = "not graded by this rubric"


def _verdict(
    scale: MarkScale, verdicts: Mapping[str, Any], mine: Annotation | None
) -> tuple[str, str, bool | None]:
    record = verdicts.get(scale.id)
    if record is None:
        return NO_VERDICT, "", None
    if record.state != "scored" or record.value is None:
        word = "n/a" if record.state == "not_applicable" else str(record.state)
        same = mine is not None and mine.state == record.state == "not_applicable"
        return word, record.reason, True if same else None
    label = scale.label_of("scored", record.value)
    if mine is None or mine.value is None:
        return label, record.reason, None
    return label, record.reason, scale.passes(mine.value) == scale.passes(record.value)


def _pair_verdict(
    item: ReviewItem,
    scale: MarkScale,
    verdicts: Mapping[int, Mapping[str, Any]],
    mine: Annotation | None,
) -> tuple[str, str, bool | None]:
    """Of two rollouts that were graded apart, the one with the better value."""
    a = verdicts.get(item.rollout_id, {}).get(scale.id)
    b = verdicts.get(item.other_id or 0, {}).get(scale.id)
    if a is None or b is None or a.value is None or b.value is None:
        return NO_VERDICT, "", None
    gain = (b.value - a.value) * (-1 if scale.is_negative else 1)
    preferred = "e" if abs(gain) < 1e-9 else "b" if gain > 0 else "a"
    return (
        _side_word(_side(item, preferred)),
        "by the verdicts on each of them",
        mine.preference == preferred if mine else None,
    )
