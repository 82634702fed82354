"""What changes review queues and their items: create, fill, assign, requeue, move, delete.

Taking an item is in `reservations`, marking it in `marks`. Marks outlive their item: when it is
deleted they stay as marks of the rollout, except those of a pair, which mean nothing without it.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone

from orchestrator.projects.access import require
from orchestrator.projects.models import Membership, Project, Role, User
from orchestrator.review.entries import note
from orchestrator.review.errors import ItemGone, ReviewRefused
from orchestrator.review.models import (
    Annotation,
    Deed,
    QueueMode,
    ReviewItem,
    ReviewQueue,
    ReviewSeat,
    ReviewSkip,
    SeatState,
)
from orchestrator.review.reservations import hold
from orchestrator.review.scales import scales_of
from orchestrator.review.splits import is_swapped
from orchestrator.review.texts import storable
from orchestrator.runs.models import Rollout, RolloutState
from rubrics.models import RubricVersion

MAX_SEATS = 9
LONGEST_RESERVATION_MIN = 24 * 60
MOST_AT_ONCE = 5000
REVIEWABLE = (RolloutState.SCORED, RolloutState.ERRORED, RolloutState.NOT_APPLICABLE)


@dataclass(frozen=True)
class QueueSpec:
    """What a queue is made of."""

    name: str
    rubric_version: RubricVersion
    criteria: Sequence[str] = ()
    """Ids; none: all of the rubric."""
    instructions: str = ""
    mode: str = QueueMode.SINGLE
    seats: int = 1
    reviewers: Sequence[User] = ()
    is_blind: bool = True
    reserve_minutes: int = 20


@dataclass(frozen=True)
class Added:
    """What came of adding rollouts."""

    added: int
    already: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    """Reason -> how many rollouts."""

    def __str__(self) -> str:
        parts = [f"{self.added} item{'' if self.added == 1 else 's'} added"]
        if self.already:
            parts.append(f"{self.already} there already")
        parts += [f"{n} left out: {reason}" for reason, n in self.refused.items()]
        return "; ".join(parts) + "."


def create_queue(
    *, actor: User, project: Project, spec: QueueSpec, now: datetime | None = None
) -> ReviewQueue:
    """Raises ReviewRefused naming the field."""
    require(actor, project, Role.EDITOR)
    _check(project, spec)
    try:
        with transaction.atomic():
            queue = ReviewQueue.objects.create(
                project=project,
                name=storable(spec.name, "name"),
                rubric_version=spec.rubric_version,
                criteria=list(spec.criteria),
                instructions=storable(spec.instructions, "instructions"),
                mode=spec.mode,
                seats=spec.seats,
                is_blind=spec.is_blind,
                reserve_minutes=spec.reserve_minutes,
                created_by=actor,
            )
            queue.reviewers.set(spec.reviewers)
            note(Deed.CREATED, actor=actor, queue=queue, at=now or timezone.now())
    except IntegrityError as exc:
        raise ReviewRefused(
            f"name: there is a queue “{spec.name.strip()}” already. Choose another name."
        ) from exc
    return queue


def _check(project: Project, spec: QueueSpec) -> None:
    if not spec.name.strip() or len(spec.name.strip()) > 120:
        raise ReviewRefused("name: accepts 1 to 120 characters.")
    if spec.rubric_version.rubric.project_id != project.pk:
        raise ReviewRefused("rubric: accepts a rubric of this project.")
    known = {scale.id for scale in scales_of(spec.rubric_version.spec)}
    if unknown := [c for c in spec.criteria if c not in known]:
        raise ReviewRefused(f"criteria: {', '.join(unknown)} is not in {spec.rubric_version}.")
    if spec.mode not in QueueMode.values:
        raise ReviewRefused(f"mode: accepts {', '.join(QueueMode.values)}.")
    if not 1 <= spec.seats <= MAX_SEATS:
        raise ReviewRefused(f"reviewers per item: accepts 1 to {MAX_SEATS}.")
    if not 1 <= spec.reserve_minutes <= LONGEST_RESERVATION_MIN:
        raise ReviewRefused(f"reservation: accepts 1 to {LONGEST_RESERVATION_MIN} minutes.")
    if spec.reviewers and len(spec.reviewers) < spec.seats:
        raise ReviewRefused(
            f"reviewers: {len(spec.reviewers)} named, and each item needs {spec.seats}. "
            "Name more of them, or none so that anybody may review."
        )
    _check_reviewers(project.pk, spec.reviewers)


def _check_reviewers(project_id: int, users: Iterable[User]) -> None:
    wanted = {user.pk: user.username for user in users}
    able = Membership.objects.filter(
        project_id=project_id, user_id__in=wanted, role__in=(Role.EDITOR, Role.ADMIN)
    ).values_list("user_id", flat=True)
    if missing := sorted(wanted[pk] for pk in wanted.keys() - set(able)):
        raise ReviewRefused(
            f"reviewers: {', '.join(missing)} cannot review here. An editor or admin of the "
            "project can."
        )


def add_items(
    queue: ReviewQueue,
    rollouts: Iterable[Rollout],
    *,
    actor: User,
    now: datetime | None = None,
) -> Added:
    """Puts rollouts at the end of the queue; those that it holds stay where they are.

    A pairwise queue gets pairs: rollouts of the same task, in order, two by two. Repeatable.
    """
    require(actor, queue.project_id, Role.EDITOR)
    chosen = {rollout.pk: rollout for rollout in itertools.islice(rollouts, MOST_AT_ONCE + 1)}
    if len(chosen) > MOST_AT_ONCE:
        raise ReviewRefused(f"{MOST_AT_ONCE} rollouts can be added at once. Choose fewer.")
    refused: Counter[str] = Counter()
    # Read again: what is added is what the database holds, of this project and nothing else.
    able: list[Rollout] = []
    found = Rollout.everything.filter(pk__in=chosen, run__project_id=queue.project_id)
    for rollout in found.only("id", "state", "task_id", "is_replaced").order_by("id"):
        if rollout.is_replaced:
            refused["replaced by a retry"] += 1
        elif rollout.state not in REVIEWABLE:
            refused[f"still {rollout.state}" if rollout.state != "cancelled" else "cancelled"] += 1
        else:
            able.append(rollout)
    if missing := len(chosen) - len(able) - sum(refused.values()):
        refused["not in this project"] += missing
    pairs = _pairs(able, refused) if queue.mode == QueueMode.PAIRWISE else [(r, None) for r in able]
    with transaction.atomic():
        added = _insert(queue, [(a.pk, b.pk if b else None) for a, b in pairs])
        if added:
            note(Deed.ADDED, actor=actor, queue=queue, at=now or timezone.now(), n=added)
    return Added(added, len(pairs) - added, dict(refused))


def _pairs(
    rollouts: Sequence[Rollout], refused: Counter[str]
) -> list[tuple[Rollout, Rollout | None]]:
    by_task: dict[int, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        by_task[rollout.task_id].append(rollout)
    pairs: list[tuple[Rollout, Rollout | None]] = []
    for members in by_task.values():
        pairs += zip(members[::2], members[1::2], strict=False)
        if len(members) % 2:
            refused["no second rollout of the same task to compare with"] += 1
    return pairs


def _insert(queue: ReviewQueue, wanted: Sequence[tuple[int, int | None]]) -> int:
    """How many were not there yet. Needs a transaction."""
    # Two who add at once: the second waits here, then sees what the first has put in.
    ReviewQueue.objects.select_for_update().get(pk=queue.pk)
    there = set(ReviewItem.objects.filter(queue=queue).values_list("rollout_id", "other_id"))
    top = ReviewItem.objects.filter(queue=queue).aggregate(top=Max("position"))["top"] or 0
    fresh = [
        ReviewItem(
            queue=queue,
            rollout_id=rollout_id,
            other_id=other_id,
            is_swapped=other_id is not None and is_swapped(queue.pk, rollout_id, other_id),
            position=top + i,
        )
        for i, (rollout_id, other_id) in enumerate(
            ((a, b) for a, b in wanted if (a, b) not in there), 1
        )
    ]
    ReviewItem.objects.bulk_create(fresh)
    _deal(queue, fresh)
    return len(fresh)


def _deal(queue: ReviewQueue, items: Sequence[ReviewItem]) -> None:
    """Assigns items to the named reviewers in turn, as many to each item as it has seats."""
    named = list(queue.reviewers.order_by("pk").values_list("pk", flat=True))
    if not named:
        return
    turn = itertools.cycle(named)
    # Goes on after whoever got the last item, so that small additions are dealt fairly too.
    for _ in range(ReviewItem.assigned.through.objects.filter(reviewitem__queue=queue).count()):
        next(turn)
    ReviewItem.assigned.through.objects.bulk_create(
        ReviewItem.assigned.through(reviewitem_id=item.pk, user_id=next(turn))
        for item in items
        for _ in range(queue.seats)
    )


def assign(
    *, actor: User, item: ReviewItem, users: Sequence[User], now: datetime | None = None
) -> None:
    """Keeps seats of the item for these people, and for nobody else."""
    require(actor, item.queue.project_id, Role.EDITOR)
    if len(users) > item.queue.seats:
        raise ReviewRefused(
            f"{len(users)} people for {item.queue.seats} seats. Choose fewer, or make a queue "
            "with more reviewers per item."
        )
    _check_reviewers(item.queue.project_id, users)
    with transaction.atomic():
        held = hold(item)
        held.assigned.set(users)
        ReviewSkip.objects.filter(item=item, user__in=users).delete()
        names = [user.username for user in users]
        note(
            Deed.ASSIGNED,
            actor=actor,
            queue=held.queue,
            item=held,
            at=now or timezone.now(),
            to=names,
        )


def requeue(*, actor: User, item: ReviewItem, now: datetime | None = None) -> None:
    """Puts the item at the end of the queue, to be marked again by the actor or somebody else.

    The actor's seat becomes free, and their marks of it are withdrawn; the record keeps them.
    """
    require(actor, item.queue.project_id, Role.EDITOR)
    with transaction.atomic():
        held = hold(item)
        marks = Annotation.objects.filter(item=held, user=actor)
        before = {mark.criterion: _as_json(mark) for mark in marks}
        marks.delete()
        ReviewSeat.objects.filter(item=held, user=actor).delete()
        ReviewSkip.objects.filter(item=held, user=actor).delete()
        top = ReviewItem.objects.filter(queue=held.queue).aggregate(top=Max("position"))["top"] or 0
        ReviewItem.objects.filter(pk=held.pk).update(position=top + 1)
        note(
            Deed.REQUEUED,
            actor=actor,
            queue=held.queue,
            item=held,
            at=now or timezone.now(),
            before=before,
        )


def delete_item(*, actor: User, item: ReviewItem, now: datetime | None = None) -> None:
    """Whoever has it open is told when they save, and keeps what they marked. Repeatable."""
    require(actor, item.queue.project_id, Role.EDITOR)
    with transaction.atomic():
        try:
            held = hold(item)
        except ItemGone:
            return
        marks = {str(m.pk): _as_json(m) for m in Annotation.objects.filter(item=held)}
        _rescue_marks([held.pk])
        note(
            Deed.DELETED,
            actor=actor,
            queue=held.queue,
            item=held,
            at=now or timezone.now(),
            marks=marks,
        )
        held.delete()


def delete_queue(*, actor: User, queue: ReviewQueue) -> None:
    """Admins only: the record of the queue goes with it. Marks of single rollouts stay."""
    require(actor, queue.project_id, Role.ADMIN)
    with transaction.atomic():
        _rescue_marks(list(queue.items.values_list("pk", flat=True)))
        queue.delete()


def _rescue_marks(item_ids: Sequence[int]) -> None:
    """Marks of these items become marks of the rollout; of two by one person the newest stays."""
    marks = Annotation.objects.filter(item_id__in=item_ids, preference="").order_by("updated_at")
    for mark in marks:
        Annotation.objects.filter(
            item=None,
            rollout_id=mark.rollout_id,
            rubric_id=mark.rubric_id,
            criterion=mark.criterion,
            user_id=mark.user_id,
        ).delete()
        Annotation.objects.filter(pk=mark.pk).update(item=None)


def move_item(
    *, actor: User, item: ReviewItem, to: ReviewQueue, now: datetime | None = None
) -> None:
    """Into another queue of the project, with its marks; reservations end.

    Raises ReviewRefused where the other queue asks for something else than was marked.
    """
    require(actor, item.queue.project_id, Role.EDITOR)
    now = now or timezone.now()
    with transaction.atomic():
        held = hold(item)
        source = held.queue
        if to.pk == source.pk:
            return
        done = list(held.seats.filter(state=SeatState.DONE).order_by("number"))
        _check_move(held, source, to, len(done))
        held.seats.filter(state=SeatState.RESERVED).delete()
        held.skips.all().delete()
        held.assigned.clear()
        top = to.items.aggregate(top=Max("position"))["top"] or 0
        ReviewItem.objects.filter(pk=held.pk).update(queue=to, position=top + 1)
        # Ascending, so that a number is free when it is needed.
        for number, seat in enumerate(done):
            ReviewSeat.objects.filter(pk=seat.pk).update(queue=to, number=number, of=to.seats)
        note(Deed.MOVED, actor=actor, queue=source, item=held, at=now, to=to.pk, name=to.name)
        note(Deed.MOVED, actor=actor, queue=to, item=held, at=now, source=source.pk)


def _check_move(item: ReviewItem, source: ReviewQueue, to: ReviewQueue, n_done: int) -> None:
    if to.project_id != source.project_id or to.mode != source.mode:
        raise ReviewRefused("An item moves to a queue of the same project and mode only.")
    if to.items.filter(rollout=item.rollout, other=item.other).exists():
        raise ReviewRefused(f"“{to.name}” holds it already. Delete it here instead.")
    if not n_done:
        return
    if (to.rubric_version_id, to.criteria) != (source.rubric_version_id, source.criteria):
        raise ReviewRefused(
            f"It is marked by {source.rubric_version}, and “{to.name}” asks for something else. "
            "Add the rollout there instead; its marks here stay."
        )
    if n_done > to.seats:
        raise ReviewRefused(
            f"{n_done} people have marked it, and “{to.name}” has {to.seats} per item."
        )


def _as_json(mark: Annotation) -> dict[str, object]:
    return {
        "user": mark.user_id,
        "criterion": mark.criterion,
        "state": mark.state,
        "value": mark.value,
        "preference": mark.preference,
        "note": mark.note,
    }
