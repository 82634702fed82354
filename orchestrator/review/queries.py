"""What pages read of review. States and counts come from the rows each time, never from a column.

An item is *completed* when all its seats are done. Else, for the person who looks, it *needs
review* when they could take it now, and *needs others* when they could not.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import (
    Count,
    Exists,
    F,
    IntegerField,
    Max,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
)
from django.db.models.functions import Coalesce
from django.utils import timezone

from orchestrator.projects.models import Membership, Role, User
from orchestrator.review.entries import name_of
from orchestrator.review.models import (
    Annotation,
    Correction,
    Deed,
    ReviewComment,
    ReviewEntry,
    ReviewItem,
    ReviewQueue,
    ReviewSeat,
    SeatState,
)
from orchestrator.review.reservations import count_seats, live, open_to
from orchestrator.runs.models import Rollout, Run, VerdictRecord
from rubrics.models import RubricVersion

ITEMS_SHOWN = 200
ENTRIES_SHOWN = 100

NEEDS_REVIEW, NEEDS_OTHERS, COMPLETED = "needs_review", "needs_others", "completed"
ITEM_STATES = (NEEDS_REVIEW, NEEDS_OTHERS, COMPLETED)


@dataclass(frozen=True)
class Counts:
    """Of one queue, for one person."""

    total: int = 0
    needs_review: int = 0
    completed: int = 0

    @property
    def needs_others(self) -> int:
        return self.total - self.needs_review - self.completed


def _with_state(items: QuerySet[ReviewItem], user: User, now: datetime) -> QuerySet[Any]:
    """Each item with `n_done`, `is_complete` and `is_open` (to the user)."""
    done = ReviewSeat.objects.filter(item=OuterRef("pk"), state=SeatState.DONE)
    return items.annotate(
        n_done=count_seats(done), is_open=Exists(open_to(user, now).filter(pk=OuterRef("pk")))
    )


IS_COMPLETE = Q(n_done__gte=F("queue__seats"))


def counts(
    queue_ids: Iterable[int], user: User, *, now: datetime | None = None
) -> dict[int, Counts]:
    """One query for any number of queues."""
    items = ReviewItem.objects.filter(queue_id__in=list(queue_ids)).order_by()
    rows = (
        _with_state(items, user, now or timezone.now())
        .values("queue_id")
        .annotate(
            total=Count("pk"),
            completed=Count("pk", filter=IS_COMPLETE),
            needs_review=Count("pk", filter=Q(is_open=True) & ~IS_COMPLETE),
        )
    )
    return {
        row["queue_id"]: Counts(row["total"], row["needs_review"], row["completed"]) for row in rows
    }


def n_to_review(user: User) -> Coalesce:
    """How many items of the project of `OuterRef` the user could take now, as a subquery."""
    found = (
        open_to(user, timezone.now())
        .filter(queue__project_id=OuterRef("pk"))
        .order_by()
        .values("queue__project_id")
        .annotate(n=Count("pk"))
        .values("n")
    )
    return Coalesce(Subquery(found, output_field=IntegerField()), 0)


@dataclass(frozen=True)
class QueueRow:
    queue: ReviewQueue
    counts: Counts
    reviewers: Sequence[str]
    touched_at: datetime | None


def list_queues(project_id: int, user: User) -> list[QueueRow]:
    """Newest first, three queries."""
    queues = list(
        ReviewQueue.objects.filter(project_id=project_id)
        .select_related("rubric_version__rubric")
        .prefetch_related("reviewers")
        .annotate(touched_at=Max("entries__at"))
        .order_by("-pk")
    )
    counted = counts([queue.pk for queue in queues], user)
    return [
        QueueRow(
            queue=queue,
            counts=counted.get(queue.pk, Counts()),
            reviewers=[person.username for person in queue.reviewers.all()],
            touched_at=queue.touched_at,
        )
        for queue in queues
    ]


def names_of_queues(project_id: int) -> list[ReviewQueue]:
    """For choosing one to add to."""
    return list(
        ReviewQueue.objects.filter(project_id=project_id)
        .select_related("rubric_version__rubric")
        .order_by("-pk")[:100]
    )


@dataclass(frozen=True)
class ItemRow:
    item: ReviewItem
    name: str
    state: str
    """One of `ITEM_STATES`."""
    n_done: int
    holders: Sequence[str]
    """Who has it open now."""
    assigned: Sequence[str]
    is_mine: bool
    """Open by the one who looks, or assigned to them and not done."""
    is_done_by_me: bool


def list_items(
    queue: ReviewQueue, user: User, *, state: str = "", now: datetime | None = None
) -> list[ItemRow]:
    """In queue order, at most `ITEMS_SHOWN`, three queries."""
    now = now or timezone.now()
    found = _with_state(queue.items.order_by("position", "id"), user, now)
    if state == COMPLETED:
        found = found.filter(IS_COMPLETE)
    elif state == NEEDS_REVIEW:
        found = found.filter(Q(is_open=True) & ~IS_COMPLETE)
    elif state == NEEDS_OTHERS:
        found = found.filter(~IS_COMPLETE, is_open=False)
    seats = ReviewSeat.objects.filter(live(now)).select_related("user")
    items = found.select_related("rollout__task", "other").prefetch_related(
        Prefetch("seats", seats, to_attr="live_seats"), "assigned"
    )
    return [_item_row(item, queue, user) for item in items[:ITEMS_SHOWN]]


def _item_row(item: Any, queue: ReviewQueue, user: User) -> ItemRow:
    seats: list[ReviewSeat] = item.live_seats
    mine = next((seat for seat in seats if seat.user_id == user.pk), None)
    assigned = list(item.assigned.all())
    if item.n_done >= queue.seats:
        state = COMPLETED
    else:
        state = NEEDS_REVIEW if item.is_open else NEEDS_OTHERS
    is_done = mine is not None and mine.state == SeatState.DONE
    return ItemRow(
        item=item,
        name=name_of(item),
        state=state,
        n_done=item.n_done,
        holders=[
            seat.user.username
            for seat in seats
            if seat.state == SeatState.RESERVED and seat.user_id != user.pk
        ],
        assigned=[person.username for person in assigned],
        is_mine=not is_done and (mine is not None or user.pk in {p.pk for p in assigned}),
        is_done_by_me=is_done,
    )


@dataclass(frozen=True)
class Reviewer:
    user: User
    n_done: int
    n_open: int


def progress(queue: ReviewQueue, *, now: datetime | None = None) -> list[Reviewer]:
    """Who has marked how many, most first; named reviewers also when they have done none."""
    now = now or timezone.now()
    seats = ReviewSeat.objects.filter(queue=queue).filter(live(now))
    by_user: dict[int, dict[str, int]] = defaultdict(dict)
    for row in seats.values("user_id", "state").annotate(n=Count("pk")):
        by_user[row["user_id"]][row["state"]] = row["n"]
    named = set(queue.reviewers.values_list("pk", flat=True))
    people = User.objects.filter(pk__in=by_user.keys() | named).order_by("username")
    found = [
        Reviewer(
            user=person,
            n_done=by_user[person.pk].get(SeatState.DONE, 0),
            n_open=by_user[person.pk].get(SeatState.RESERVED, 0),
        )
        for person in people
    ]
    return sorted(found, key=lambda reviewer: -reviewer.n_done)


def people_who_can(project_id: int) -> list[User]:
    """Members who may review."""
    return list(
        User.objects.filter(
            memberships__project_id=project_id,
            memberships__role__in=(Role.EDITOR, Role.ADMIN),
            is_active=True,
        ).order_by("username")
    )


def is_reviewer(project_id: int, user: User) -> bool:
    return Membership.objects.filter(
        project_id=project_id, user=user, role__in=(Role.EDITOR, Role.ADMIN)
    ).exists()


def seat_of(item: ReviewItem, user: User, *, now: datetime | None = None) -> ReviewSeat | None:
    """The user's seat, if it counts."""
    seats = ReviewSeat.objects.filter(item=item, user=user).filter(live(now or timezone.now()))
    return seats.first()


def can_take(item: ReviewItem, user: User, *, now: datetime | None = None) -> bool:
    return open_to(user, now or timezone.now()).filter(pk=item.pk).exists()


def marks_of(item: ReviewItem) -> dict[int, dict[str, Annotation]]:
    """User id -> criterion -> mark."""
    found: dict[int, dict[str, Annotation]] = defaultdict(dict)
    for mark in Annotation.objects.filter(item=item).select_related("user").order_by("user_id"):
        found[mark.user_id][mark.criterion] = mark
    return dict(found)


def correction_of(rollout_id: int, user: User) -> str:
    texts = Correction.objects.filter(rollout_id=rollout_id, user=user)
    return texts.values_list("text", flat=True).first() or ""


def comments_of(item: ReviewItem) -> list[ReviewComment]:
    return list(ReviewComment.objects.filter(item=item).select_related("user")[:200])


def history(queue: ReviewQueue, *, item_id: int | None = None) -> list[ReviewEntry]:
    """Newest first."""
    found = ReviewEntry.objects.filter(queue=queue).select_related("user")
    if item_id is not None:
        found = found.filter(item_number=item_id)
    return list(found[:ENTRIES_SHOWN])


@dataclass(frozen=True)
class Departure:
    """Why an item is not where it was."""

    name: str
    why: str
    """A sentence: who did what when."""
    moved_to: ReviewItem | None


def departure_of(queue: ReviewQueue, item_id: int) -> Departure | None:
    """None when the queue never had it."""
    entries = ReviewEntry.objects.filter(queue=queue, item_number=item_id).select_related("user")
    entry = entries.filter(deed__in=(Deed.DELETED, Deed.MOVED)).first()
    if entry is None:
        last = entries.first()
        gone = "Its rollout was deleted, and the item with it."
        return Departure(last.item_name, gone, None) if last else None
    moved = (
        ReviewItem.objects.select_related("queue")
        .filter(pk=item_id, queue__project_id=queue.project_id)
        .exclude(queue=queue)
        .first()
    )
    who, when = entry.user.username if entry.user else "somebody", f"{entry.at:%H:%M} UTC"
    if entry.deed == Deed.DELETED:
        why = f"{who} deleted this item at {when}."
    else:
        to = moved.queue.name if moved else entry.detail.get("name", "another queue")
        why = f"{who} moved this item to “{to}” at {when}."
        why += "" if moved else " It is not there any more either."
    return Departure(entry.item_name, why, moved)


def verdicts_of(rollout_ids: Iterable[int], rubric_id: int) -> dict[int, Mapping[str, Any]]:
    """Rollout -> criterion -> the verdict that its run stored, where the run used this rubric."""
    found: dict[int, dict[str, Any]] = defaultdict(dict)
    records = VerdictRecord.objects.filter(
        rollout_id__in=list(rollout_ids), rollout__run__rubric_version__rubric_id=rubric_id
    )
    for record in records:
        found[record.rollout_id][record.criterion] = record
    return dict(found)


def is_done_by(item: ReviewItem, user: User) -> bool:
    return ReviewSeat.objects.filter(item=item, user=user, state=SeatState.DONE).exists()


def rollout_in(project_id: int, rollout_id: int) -> Rollout | None:
    return (
        Rollout.everything.select_related("run", "task")
        .filter(run__project_id=project_id, pk=rollout_id)
        .first()
    )


OUTCOMES = {
    "all": Q(),
    "passed": Q(state="scored", score__gte=0.5),
    "failed": Q(state="scored", score__lt=0.5),
    "errored": Q(state="errored"),
}
"""What of a run to add to a queue."""


def rollouts_to_add(run: Run, *, outcome: str = "all", at_most: int | None = None) -> list[Rollout]:
    """Ended rollouts of a run; with `at_most`, a sample that is the same each time."""
    found = Rollout.objects.filter(OUTCOMES[outcome], run=run).order_by("id")
    if at_most is None:
        return list(found)
    by_chance = sorted(
        found, key=lambda r: hashlib.sha256(f"sample {r.run_id}/{r.pk}".encode()).digest()
    )
    return sorted(by_chance[:at_most], key=lambda r: r.pk)


def recent_runs(project_id: int) -> list[Run]:
    return list(
        Run.objects.filter(project_id=project_id)
        .select_related("environment_version__environment")
        .order_by("-pk")[:50]
    )


def newest_versions(project_id: int) -> list[RubricVersion]:
    """The newest version of each rubric."""
    found: dict[int, RubricVersion] = {}
    versions = RubricVersion.objects.filter(rubric__project_id=project_id)
    for version in versions.select_related("rubric").order_by("rubric__name", "-number"):
        found.setdefault(version.rubric_id, version)
    return list(found.values())


def version_in(project_id: int, version_id: int) -> RubricVersion | None:
    found = RubricVersion.objects.select_related("rubric")
    return found.filter(rubric__project_id=project_id, pk=version_id).first()


def rollouts_in(project_id: int, ids: Iterable[int]) -> list[Rollout]:
    found = Rollout.everything.filter(pk__in=list(ids), run__project_id=project_id)
    return list(found.order_by("pk"))


def run_in(project_id: int, run_id: int) -> Run | None:
    return Run.objects.filter(project_id=project_id, pk=run_id).first()


def items_in(queue: ReviewQueue, ids: Iterable[int]) -> list[ReviewItem]:
    found = ReviewItem.objects.filter(queue=queue, pk__in=list(ids))
    return list(found.select_related("queue", "rollout__task", "other"))
