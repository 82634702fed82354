"""Seats: who gets which item, for how long, and that two never get the same one."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import timedelta

import pytest
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, connection, transaction
from django.http import Http404
from django.utils import timezone

from orchestrator.projects.models import Role, User
from orchestrator.review.errors import ItemGone, ItemMoved, SeatLost
from orchestrator.review.marks import save_marks
from orchestrator.review.models import ReviewEntry, ReviewItem, ReviewQueue, ReviewSeat
from orchestrator.review.reservations import renew, skip, take, take_next
from orchestrator.review.services import assign, delete_item, move_item
from tests.base import People, add_member, make_user
from tests.review.build import GOOD, items_of, make_queue, make_rollouts


@pytest.fixture
def queue(people: People) -> ReviewQueue:
    return make_queue(people.project, people.owner, make_rollouts(people.project, 3))


def test_the_oldest_item_comes_first_and_stays_until_it_is_done(
    people: People, queue: ReviewQueue
) -> None:
    first, second, _ = items_of(queue)
    assert take_next(actor=people.owner, queue=queue) == first
    assert take_next(actor=people.owner, queue=queue) == first
    assert take_next(actor=people.editor, queue=queue) == second


def test_an_assigned_item_comes_before_older_ones_and_is_kept_from_others(
    people: People, queue: ReviewQueue
) -> None:
    first, second, third = items_of(queue)
    assign(actor=people.owner, item=third, users=[people.editor])
    assign(actor=people.owner, item=first, users=[people.editor])
    assert take_next(actor=people.owner, queue=queue) == second
    assert take_next(actor=people.editor, queue=queue) == first
    with pytest.raises(SeatLost, match="assigned"):
        take(actor=people.owner, item=third)
    skip(actor=people.editor, item=third)
    assert take(actor=people.owner, item=third).user == people.owner


def test_one_of_two_seats_is_kept_for_whom_the_item_is_assigned_to(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 1), seats=2)
    (item,) = items_of(queue)
    named, second, third = people.editor, people.owner, make_user()
    add_member(people.project, third, Role.EDITOR)
    assign(actor=people.owner, item=item, users=[named])
    take(actor=second, item=item)
    with pytest.raises(SeatLost):
        take(actor=third, item=item)
    assert take(actor=named, item=item).user == named


def test_a_reservation_that_ran_out_gives_its_seat_to_the_next(
    people: People, queue: ReviewQueue
) -> None:
    now = timezone.now()
    first = take_next(actor=people.owner, queue=queue, now=now)
    assert first is not None
    in_time = now + timedelta(minutes=19)
    assert take_next(actor=people.editor, queue=queue, now=in_time) != first
    skip(actor=people.editor, item=items_of(queue)[1], now=in_time)
    late = now + timedelta(minutes=21)
    assert take_next(actor=people.editor, queue=queue, now=late) == first
    with pytest.raises(SeatLost, match=people.editor.username):
        renew(actor=people.owner, item=first, now=late)
    assert ReviewEntry.objects.filter(deed="expired", user=people.owner).count() == 1


def test_renewing_gives_the_whole_time_again(people: People, queue: ReviewQueue) -> None:
    now = timezone.now()
    item = take_next(actor=people.owner, queue=queue, now=now)
    assert item is not None
    later = now + timedelta(minutes=15)
    assert renew(actor=people.owner, item=item, now=later).expires_at == later + timedelta(
        minutes=20
    )


def test_opening_another_item_gives_the_first_one_back(people: People, queue: ReviewQueue) -> None:
    first, second, _ = items_of(queue)
    take(actor=people.owner, item=first)
    take(actor=people.owner, item=second)
    assert list(ReviewSeat.objects.values_list("item_id", flat=True)) == [second.pk]


def test_a_skipped_item_goes_to_others_and_not_back_to_the_same_person(
    people: People, queue: ReviewQueue
) -> None:
    first, second, _ = items_of(queue)
    take_next(actor=people.owner, queue=queue)
    skip(actor=people.owner, item=first, reason="I wrote this task")
    assert take_next(actor=people.owner, queue=queue) == second
    assert take_next(actor=people.editor, queue=queue) == first


def test_the_last_item_leaves_nothing_to_do(people: People, queue: ReviewQueue) -> None:
    for _ in range(3):
        item = take_next(actor=people.owner, queue=queue)
        assert item is not None
        save_marks(actor=people.owner, item=item, marks=GOOD)
    assert take_next(actor=people.owner, queue=queue) is None
    assert take_next(actor=people.editor, queue=queue) is None


def test_an_item_that_is_gone_or_elsewhere_says_so(people: People, queue: ReviewQueue) -> None:
    first, second, _ = items_of(queue)
    other = make_queue(
        people.project, people.owner, rubric_version=queue.rubric_version, name="elsewhere"
    )
    delete_item(actor=people.owner, item=first)
    move_item(actor=people.owner, item=second, to=other)
    with pytest.raises(ItemGone):
        take(actor=people.owner, item=first)
    with pytest.raises(ItemMoved, match="elsewhere"):
        take(actor=people.owner, item=second)


def test_viewers_and_strangers_take_nothing(people: People, queue: ReviewQueue) -> None:
    with pytest.raises(PermissionDenied):
        take_next(actor=people.member, queue=queue)
    with pytest.raises(Http404):
        take_next(actor=people.stranger, queue=queue)


@pytest.mark.parametrize(
    ("number", "of", "who"),
    [(0, 1, "second"), (1, 1, "second"), (1, 2, "first")],
    ids=["a taken seat", "a seat beyond the queue", "a second seat of one person"],
)
def test_the_database_itself_refuses(
    people: People, queue: ReviewQueue, number: int, of: int, who: str
) -> None:
    item = items_of(queue)[0]
    take(actor=people.owner, item=item)
    user = people.owner if who == "first" else people.editor
    with pytest.raises(IntegrityError), transaction.atomic():
        ReviewSeat.objects.create(
            item=item, queue=queue, number=number, of=of, user=user, expires_at=timezone.now()
        )


def race(people: list[User], queue: ReviewQueue) -> list[ReviewItem | None]:
    """Everybody asks for the next item at the same moment, on a connection of their own."""
    gate = threading.Barrier(len(people))
    got: list[ReviewItem | None] = []
    failures: list[BaseException] = []

    def ask(person: User) -> None:
        try:
            gate.wait(10)
            got.append(take_next(actor=person, queue=queue))
        except BaseException as failure:  # told to the test below
            failures.append(failure)
        finally:
            connection.close()

    threads = [threading.Thread(target=ask, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not failures, failures
    return got


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("seats", [1, 2])
def test_reviewers_who_race_for_the_next_item_never_share_a_seat(
    people: People, seats: int
) -> None:
    reviewers = [people.owner, people.editor, make_user(), make_user()]
    for person in reviewers[2:]:
        add_member(people.project, person, Role.EDITOR)
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 3), seats=seats)
    got = Counter(item.pk if item else None for item in race(reviewers, queue))
    n_free = 3 * seats
    assert sum(n for pk, n in got.items() if pk) == min(len(reviewers), n_free)
    assert all(n <= seats for pk, n in got.items() if pk)


@pytest.mark.django_db(transaction=True)
def test_a_person_who_asks_twice_at_once_gets_one_item(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 3))
    got = race([people.owner] * 4, queue)
    assert len({item.pk for item in got if item}) == 1
    assert ReviewSeat.objects.count() == 1
