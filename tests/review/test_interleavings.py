"""Random interleavings of what several people do in one queue (rules RE-1 and RE-2).

A model in plain Python says what must be true after each step; the database is asked, not the page.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orchestrator.projects.models import Role
from orchestrator.review import marks, queries, reservations, services
from orchestrator.review.errors import ItemGone, SeatLost
from orchestrator.review.models import Annotation, ReviewItem, ReviewSeat
from tests.base import add_member, make_project, make_user
from tests.review.build import BAD, GOOD, make_queue, make_rollouts, make_version

N_PEOPLE, N_ITEMS = 3, 3
PEOPLE = st.integers(0, N_PEOPLE - 1)
ITEMS = st.integers(0, N_ITEMS - 1)


class World:
    """People and rollouts, made once for all examples."""

    def __init__(self) -> None:
        self.owner = make_user()
        self.project = make_project(owner=self.owner)
        self.people = [make_user() for _ in range(N_PEOPLE)]
        for person in self.people:
            add_member(self.project, person, Role.EDITOR)
        self.rollouts = make_rollouts(self.project, N_ITEMS)
        self.version = make_version(self.project)


class Reviewing(RuleBasedStateMachine):
    world: World

    def __init__(self) -> None:
        super().__init__()
        self.block = transaction.atomic()
        self.block.__enter__()
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.steps = 0
        self.done: dict[int, set[int]] = {}
        """Item -> who has marked it."""

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.block.__exit__(None, None, None)

    @initialize(seats=st.integers(1, 3), named=st.booleans())
    def set_up(self, seats: int, named: bool) -> None:
        self.seats = seats
        self.people = self.world.people
        self.queue = make_queue(
            self.world.project,
            self.world.owner,
            self.world.rollouts,
            rubric_version=self.world.version,
            seats=seats,
            reserve_minutes=10,
            reviewers=self.people if named else (),
        )
        self.items = list(self.queue.items.all())
        self.done = {item.pk: set() for item in self.items}

    def act(self, do: Any, person: int, item: int | None = None, **more: Any) -> Any:
        if item is not None:
            more["item"] = self.items[item]
        try:
            return do(actor=self.people[person], now=self.now, **more)
        except (ItemGone, SeatLost) as refused:
            return refused

    @rule(person=PEOPLE)
    def next(self, person: int) -> None:
        got = self.act(reservations.take_next, person, queue=self.queue)
        if isinstance(got, ReviewItem):
            assert self.people[person].pk not in self.done[got.pk], "it was marked by them already"
            assert len(self.done[got.pk]) < self.seats, "a completed item was given"

    @rule(person=PEOPLE, item=ITEMS)
    def open(self, person: int, item: int) -> None:
        self.act(reservations.take, person, item)

    @rule(person=PEOPLE, item=ITEMS, good=st.booleans())
    def mark(self, person: int, item: int, good: bool) -> None:
        got = self.act(marks.save_marks, person, item, marks=GOOD if good else BAD)
        if isinstance(got, ReviewSeat):
            self.done[self.items[item].pk].add(self.people[person].pk)

    @rule(person=PEOPLE)
    def mark_next(self, person: int) -> None:
        got = self.act(reservations.take_next, person, queue=self.queue)
        if isinstance(got, ReviewItem):
            # Whoever has been given an item can save it while the reservation lasts.
            marks.save_marks(actor=self.people[person], item=got, marks=GOOD, now=self.now)
            self.done[got.pk].add(self.people[person].pk)

    @rule(minutes=st.sampled_from([1, 5, 11]))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)

    @rule(person=PEOPLE, item=ITEMS)
    def skip(self, person: int, item: int) -> None:
        self.act(reservations.skip, person, item)

    @rule(person=PEOPLE, item=ITEMS)
    def requeue(self, person: int, item: int) -> None:
        if not isinstance(self.act(services.requeue, person, item), ItemGone):
            self.done[self.items[item].pk].discard(self.people[person].pk)

    @precondition(lambda self: len(self.done) > 1)
    @rule(person=PEOPLE, item=ITEMS)
    def delete(self, person: int, item: int) -> None:
        self.act(services.delete_item, person, item)
        self.done.pop(self.items[item].pk, None)

    @invariant()
    def seats_are_never_oversold(self) -> None:
        for item in ReviewItem.objects.filter(queue=self.queue).prefetch_related("seats"):
            seats = list(item.seats.all())
            assert len(seats) <= self.seats
            assert len({seat.user_id for seat in seats}) == len(seats)
            done = {seat.user_id for seat in seats if seat.state == "done"}
            assert done == self.done[item.pk], "a done seat is exactly what somebody marked"

    @invariant()
    def there_are_marks_exactly_where_a_seat_is_done(self) -> None:
        marked = set(
            Annotation.objects.filter(item__queue=self.queue).values_list("item_id", "user_id")
        )
        assert marked == {(item, user) for item, users in self.done.items() for user in users}

    @invariant()
    def counts_are_what_the_rows_say(self) -> None:
        completed = sum(len(users) == self.seats for users in self.done.values())
        # Another person at each step: all of them are asked in the long run.
        person = self.people[self.steps % N_PEOPLE]
        self.steps += 1
        counted = queries.counts([self.queue.pk], person, now=self.now)[self.queue.pk]
        assert (counted.total, counted.completed) == (len(self.done), completed)
        rows = queries.list_items(self.queue, person, now=self.now)
        states = [sum(row.state == state for row in rows) for state in queries.ITEM_STATES]
        assert states == [counted.needs_review, counted.needs_others, counted.completed]
        with transaction.atomic():
            got = reservations.take_next(actor=person, queue=self.queue, now=self.now)
            transaction.set_rollback(True)
        assert (got is not None) == (counted.needs_review > 0), "needed, and nothing to do"


def run(max_examples: int, steps: int) -> None:
    Reviewing.world = World()
    run_state_machine_as_test(
        Reviewing,
        settings=settings(
            max_examples=max_examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.django_db
def test_whatever_people_do_the_database_says_who_marked_what() -> None:
    run(max_examples=6, steps=12)


@pytest.mark.slow
@pytest.mark.django_db
def test_long_interleavings_hold_too() -> None:
    run(max_examples=40, steps=40)
