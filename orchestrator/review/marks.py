"""What people say of rollouts: marks of an item, corrected answers, comments.

Marks of one person for one item are saved together with the seat that entitles to them, so that
there are marks exactly where a seat is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.review.entries import note
from orchestrator.review.errors import ReviewRefused
from orchestrator.review.models import (
    Annotation,
    Correction,
    Deed,
    QueueMode,
    ReviewComment,
    ReviewItem,
    ReviewQueue,
    ReviewSeat,
    SeatState,
)
from orchestrator.review.reservations import take
from orchestrator.review.scales import MarkScale, scales_of
from orchestrator.review.splits import is_held_out
from orchestrator.review.texts import storable
from orchestrator.runs.models import Rollout
from rubrics.models import RubricVersion

PREFERENCES = ("a", "b", "e")


@dataclass(frozen=True)
class Mark:
    """One criterion as a form sends it."""

    said: str
    """A value on the criterion's scale or `na`; for a pair `a`, `b` or `e`, of the rollouts and
    not of the sides."""
    note: str = ""


@dataclass(frozen=True)
class _Read:
    state: str
    value: float | None
    preference: str
    note: str


def save_marks(
    *, actor: User, item: ReviewItem, marks: Mapping[str, Mark], now: datetime | None = None
) -> ReviewSeat:
    """All criteria of the item at once, and the seat is done. Again: changes the own marks.

    Works without a reservation as long as a seat is free.

    Raises:
        ReviewRefused: a criterion is missing or its value is not on the scale; names them all.
        ItemGone, SeatLost: nothing is saved.
    """
    require(actor, item.queue.project_id, Role.EDITOR)
    now = now or timezone.now()
    queue = item.queue
    read = _read(queue, marks)
    with transaction.atomic():
        seat = take(actor=actor, item=item, now=now)
        was_done = seat.state == SeatState.DONE
        before = _stored(item, actor)
        for criterion, said in read.items():
            Annotation.objects.update_or_create(
                item=item,
                criterion=criterion,
                user=actor,
                defaults=_fields(said),
                create_defaults={
                    **_fields(said),
                    "rollout_id": item.rollout_id,
                    "rubric_id": queue.rubric_version.rubric_id,
                    "rubric_version_id": queue.rubric_version_id,
                    "is_held_out": is_held_out(item.rollout_id),
                },
            )
        if not was_done:
            seat.state, seat.done_at = SeatState.DONE, now
            seat.save(update_fields=["state", "done_at"])
        after = _stored(item, actor)
        if not was_done or after != before:
            note(
                Deed.CHANGED if was_done else Deed.MARKED,
                actor=actor,
                queue=queue,
                item=ReviewItem.objects.select_related("rollout__task", "other").get(pk=item.pk),
                at=now,
                **({"before": before} if was_done else {}),
                after=after,
            )
    return seat


def mark_rollout(
    *, actor: User, rollout: Rollout, version: RubricVersion, marks: Mapping[str, Mark]
) -> int:
    """Marks outside any queue; any of the criteria. Returns how many were given.

    Raises ReviewRefused.
    """
    require(actor, rollout.run.project_id, Role.EDITOR)
    if version.rubric.project_id != rollout.run.project_id:
        raise ReviewRefused("rubric: accepts a rubric of this project.")
    scales = {s.id: s for s in scales_of(version.spec)}
    if unknown := sorted(marks.keys() - scales.keys()):
        raise ReviewRefused(f"{', '.join(unknown)}: not in {version}.")
    read = _read_values([scales[c] for c in marks], marks)
    with transaction.atomic():
        for criterion, said in read.items():
            Annotation.objects.update_or_create(
                item=None,
                rollout=rollout,
                rubric_id=version.rubric_id,
                criterion=criterion,
                user=actor,
                defaults={**_fields(said), "rubric_version": version},
                create_defaults={
                    **_fields(said),
                    "rubric_version": version,
                    "is_held_out": is_held_out(rollout.pk),
                },
            )
    return len(read)


def _fields(said: _Read) -> dict[str, object]:
    return {
        "state": said.state,
        "value": said.value,
        "preference": said.preference,
        "note": said.note,
    }


def _read(queue: ReviewQueue, marks: Mapping[str, Mark]) -> dict[str, _Read]:
    scales = scales_of(queue.rubric_version.spec, queue.criteria)
    if queue.mode != QueueMode.PAIRWISE:
        return _read_values(scales, marks)
    problems, read = [], {}
    for scale in scales:
        mark = marks.get(scale.id)
        if mark is None or mark.said not in PREFERENCES:
            problems.append(f"{scale.name}: choose A, B or equal")
        else:
            read[scale.id] = _Read("scored", None, mark.said, storable(mark.note, scale.name))
    if problems:
        raise ReviewRefused("; ".join(problems) + ".")
    return read


def _read_values(
    scales: list[MarkScale] | tuple[MarkScale, ...], marks: Mapping[str, Mark]
) -> dict[str, _Read]:
    problems, read = [], {}
    for scale in scales:
        mark = marks.get(scale.id)
        if mark is None or not mark.said:
            problems.append(f"{scale.name}: not marked yet")
            continue
        try:
            state, value = scale.read(mark.said)
        except ValueError as exc:
            problems.append(str(exc))
            continue
        read[scale.id] = _Read(state, value, "", storable(mark.note, scale.name))
    if problems:
        raise ReviewRefused("; ".join(problems) + ".")
    return read


def _stored(item: ReviewItem, actor: User) -> dict[str, object]:
    return {
        mark.criterion: {
            "state": mark.state,
            "value": mark.value,
            "preference": mark.preference,
            "note": mark.note,
        }
        for mark in Annotation.objects.filter(item=item, user=actor).order_by("criterion")
    }


def correct_answer(
    *, actor: User, item: ReviewItem, text: str, now: datetime | None = None
) -> Correction | None:
    """The answer as it should have been, kept beside the rollout's own; empty removes it."""
    require(actor, item.queue.project_id, Role.EDITOR)
    text = storable(text, "The corrected answer")
    with transaction.atomic():
        found = Correction.objects.filter(rollout=item.rollout, user=actor).first()
        if (found.text if found else "") == text:
            return found
        made = None
        if text:
            made, _ = Correction.objects.update_or_create(
                rollout=item.rollout, user=actor, defaults={"text": text}
            )
        elif found:
            found.delete()
        note(
            Deed.CORRECTED,
            actor=actor,
            queue=item.queue,
            item=item,
            at=now or timezone.now(),
            before=found.text if found else "",
            after=text,
        )
    return made


def comment(*, actor: User, item: ReviewItem, text: str) -> ReviewComment:
    """A word to the other reviewers, seen by all at once. Raises ReviewRefused when empty."""
    require(actor, item.queue.project_id, Role.EDITOR)
    if not (text := storable(text, "The comment")):
        raise ReviewRefused("The comment is empty.")
    return ReviewComment.objects.create(item=item, user=actor, text=text)
