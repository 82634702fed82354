"""Seats: who may mark which item until when.

Every function here owns a short transaction and holds the item's row while it decides; two people
who ask at once are settled by the constraints on `ReviewSeat`, and the one who came second looks
again. A reservation that ran out counts for nothing from that instant on, whether or not its row is
still there; the next who looks for a seat removes it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Count, Exists, F, IntegerField, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from orchestrator.projects.access import require
from orchestrator.projects.models import Role, User
from orchestrator.review.entries import note
from orchestrator.review.errors import ItemGone, ItemMoved, SeatLost
from orchestrator.review.models import (
    Deed,
    ReviewItem,
    ReviewQueue,
    ReviewSeat,
    ReviewSkip,
    SeatState,
)

ASSIGNED: Any = ReviewItem.assigned.through
TRIES = 50
"""Lost races before giving up; each of them means that somebody else got an item."""


def live(now: datetime) -> Q:
    """Seats that count: done, or reserved and not run out."""
    return Q(state=SeatState.DONE) | Q(state=SeatState.RESERVED, expires_at__gt=now)


def count_seats(rows: QuerySet[ReviewSeat]) -> Coalesce:
    """Of one item each, as a subquery; `rows` are those of `OuterRef`."""
    counted = rows.order_by().values("item_id").annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(counted, output_field=IntegerField()), 0)


def open_to(user: User, now: datetime) -> QuerySet[ReviewItem]:
    """Items that `user` could take now, in the order in which they are to be taken.

    Assigned ones first, then by position. A seat that is kept for an assigned person is not free
    for others until that person has skipped the item. Also holds what the user has open already.
    """
    seats = ReviewSeat.objects.filter(item=OuterRef("pk"))
    kept = (
        ASSIGNED.objects.filter(reviewitem_id=OuterRef("pk"))
        .exclude(user_id=user.pk)
        .exclude(
            Exists(
                ReviewSeat.objects.filter(
                    live(now), item=OuterRef("reviewitem_id"), user=OuterRef("user_id")
                )
            )
        )
        .exclude(
            Exists(
                ReviewSkip.objects.filter(item=OuterRef("reviewitem_id"), user=OuterRef("user_id"))
            )
        )
        .order_by()
        .values("reviewitem_id")
        .annotate(n=Count("pk"))
        .values("n")
    )
    mine = ASSIGNED.objects.filter(reviewitem_id=OuterRef("pk"), user_id=user.pk)
    return (
        # Aliases, so that a count of items does not work them out twice.
        ReviewItem.objects.alias(
            n_others=count_seats(seats.filter(live(now)).exclude(user=user)),
            n_kept=Coalesce(Subquery(kept, output_field=IntegerField()), 0),
            is_mine=Exists(mine),
        )
        .filter(
            Q(n_others__lt=F("queue__seats") - F("n_kept"))
            | Q(is_mine=True, n_others__lt=F("queue__seats"))
        )
        .exclude(Exists(seats.filter(user=user, state=SeatState.DONE)))
        .exclude(Exists(ReviewSkip.objects.filter(item=OuterRef("pk"), user=user)))
        .order_by("-is_mine", "position", "id")
    )


def take_next(*, actor: User, queue: ReviewQueue, now: datetime | None = None) -> ReviewItem | None:
    """The item that the actor has open, else the next one that needs them, reserved; None if none.

    Never gives an item to more people than it has seats. Safe to call twice.
    """
    require(actor, queue.project_id, Role.EDITOR)
    now = now or timezone.now()
    with transaction.atomic():
        release_expired(queue, now)
        for _ in range(TRIES):
            held = ReviewSeat.objects.filter(queue=queue, user=actor, state=SeatState.RESERVED)
            if seat := held.select_related("item").first():
                _renew(seat, queue, now)
                return seat.item
            found = open_to(actor, now).filter(queue=queue).first()
            if found is None:
                return None
            if _sit_down(actor, queue, found, now):
                return found
    raise SeatLost("Others took every item that was looked at. Ask for the next one again.")


def take(*, actor: User, item: ReviewItem, now: datetime | None = None) -> ReviewSeat:
    """The actor's seat at this item: the one they have, renewed, or a free one.

    What else they had reserved in the queue is given back. A skip of theirs is forgotten.
    Raises ItemGone, SeatLost.
    """
    require(actor, item.queue.project_id, Role.EDITOR)
    now = now or timezone.now()
    queue = item.queue
    with transaction.atomic():
        release_expired(queue, now)
        for _ in range(TRIES):
            hold(item)
            seat = ReviewSeat.objects.filter(item=item, user=actor).first()
            if seat is not None:
                if seat.state == SeatState.RESERVED:
                    _renew(seat, queue, now)
                return seat
            ReviewSkip.objects.filter(item=item, user=actor).delete()
            others = ReviewSeat.objects.filter(
                queue=queue, user=actor, state=SeatState.RESERVED
            ).select_related("item__rollout__task", "item__other")
            for other in others:
                note(Deed.RELEASED, actor=actor, queue=queue, item=other.item, at=now)
                other.delete()
            if not open_to(actor, now).filter(pk=item.pk).exists():
                raise SeatLost(_why_taken(item, now))
            if _sit_down(actor, queue, item, now):
                return ReviewSeat.objects.get(item=item, user=actor)
    raise SeatLost(_why_taken(item, now))


def renew(*, actor: User, item: ReviewItem, now: datetime | None = None) -> ReviewSeat:
    """More time for a reservation; one that ran out is taken again if a seat is free.

    Raises ItemGone, SeatLost.
    """
    return take(actor=actor, item=item, now=now)


def release_expired(queue: ReviewQueue, now: datetime) -> int:
    """Gives back the reservations of the queue that ran out. Needs a transaction."""
    expired = list(
        ReviewSeat.objects.filter(queue=queue, state=SeatState.RESERVED, expires_at__lte=now)
        .select_related("item__rollout__task", "item__other", "user")
        .order_by("pk")
    )
    for seat in expired:
        # Two may look at once, or the person may have renewed; whoever removes it tells of it.
        gone, _ = ReviewSeat.objects.filter(
            pk=seat.pk, state=SeatState.RESERVED, expires_at__lte=now
        ).delete()
        if gone:
            note(Deed.EXPIRED, actor=seat.user, queue=queue, item=seat.item, at=now)
    return len(expired)


def skip(*, actor: User, item: ReviewItem, reason: str = "", now: datetime | None = None) -> None:
    """The actor does not want the item; it goes on to others. Their done marks stay. Repeatable."""
    require(actor, item.queue.project_id, Role.EDITOR)
    now = now or timezone.now()
    with transaction.atomic():
        hold(item)
        ReviewSeat.objects.filter(item=item, user=actor, state=SeatState.RESERVED).delete()
        if ReviewSeat.objects.filter(item=item, user=actor).exists():
            return
        _, made = ReviewSkip.objects.get_or_create(
            item=item, user=actor, defaults={"reason": reason[:200]}
        )
        if made:
            note(Deed.SKIPPED, actor=actor, queue=item.queue, item=item, at=now, reason=reason)


def hold(item: ReviewItem) -> ReviewItem:
    """The item's row as it is, locked where the database has row locks. Needs a transaction.

    Raises ItemGone, and ItemMoved where it is in another queue than `item` says.
    """
    found = (
        ReviewItem.objects.select_for_update(of=("self",))
        .select_related("queue", "rollout__task", "other")
        .filter(pk=item.pk)
        .first()
    )
    if found is None:
        raise ItemGone("The item is not in the queue any more.")
    if found.queue_id != item.queue_id:
        raise ItemMoved(f"The item was moved to the queue “{found.queue.name}”.")
    return found


def _sit_down(actor: User, queue: ReviewQueue, item: ReviewItem, now: datetime) -> bool:
    """A reserved seat at the item; False when somebody else was faster."""
    try:
        with transaction.atomic():
            held = hold(item)
            if not open_to(actor, now).filter(pk=item.pk).exists():
                return False
            taken = set(ReviewSeat.objects.filter(item=item).values_list("number", flat=True))
            number = next((n for n in range(queue.seats) if n not in taken), None)
            if number is None:
                return False
            seat = ReviewSeat.objects.create(
                item=held,
                queue=queue,
                number=number,
                of=queue.seats,
                user=actor,
                expires_at=now + timedelta(minutes=queue.reserve_minutes),
            )
            note(
                Deed.RESERVED,
                actor=actor,
                queue=queue,
                item=held,
                at=now,
                until=seat.expires_at.isoformat(),
            )
    except (IntegrityError, ItemGone):
        return False
    return True


def _renew(seat: ReviewSeat, queue: ReviewQueue, now: datetime) -> None:
    seat.expires_at = now + timedelta(minutes=queue.reserve_minutes)
    seat.save(update_fields=["expires_at"])


def _why_taken(item: ReviewItem, now: datetime) -> str:
    seats = ReviewSeat.objects.filter(live(now), item=item).select_related("user")
    names = ", ".join(seat.user.username for seat in seats) or "those whom it is assigned to"
    n = item.queue.seats
    return (
        f"{'Its seat is' if n == 1 else f'All {n} seats are'} taken by {names}. "
        "Ask for the next item."
    )
