"""Making, filling and rearranging review queues."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from django.http import Http404

from orchestrator.review import queries
from orchestrator.review.errors import ReviewRefused
from orchestrator.review.marks import save_marks
from orchestrator.review.models import Annotation, ReviewItem
from orchestrator.review.reservations import take
from orchestrator.review.services import add_items, assign, delete_item, move_item
from orchestrator.runs.models import Rollout
from tests.base import People
from tests.review.build import GOOD, items_of, make_queue, make_rollouts, make_version

pytestmark = pytest.mark.django_db


def test_what_is_added_is_counted_once_and_at_once(people: People) -> None:
    rollouts = make_rollouts(people.project, 3)
    queue = make_queue(people.project, people.owner)
    assert str(add_items(queue, rollouts[:2], actor=people.editor)) == "2 items added."
    assert str(add_items(queue, rollouts, actor=people.editor)) == (
        "1 item added; 2 there already."
    )
    counts = queries.counts([queue.pk], people.editor)[queue.pk]
    assert (counts.total, counts.needs_review, counts.completed) == (3, 3, 0)


def test_what_cannot_be_reviewed_is_left_out_with_its_reason(people: People) -> None:
    running, replaced, fine = make_rollouts(people.project, 3)
    Rollout.objects.filter(pk=running.pk).update(state="running", score=None)
    Rollout.objects.filter(pk=replaced.pk).update(is_replaced=True)
    (foreign,) = make_rollouts(people.stranger.projects.get(), 1)
    queue = make_queue(people.project, people.owner)
    added = add_items(queue, [running, replaced, fine, foreign], actor=people.owner)
    assert added.added == 1
    assert added.refused == {
        "still running": 1,
        "replaced by a retry": 1,
        "not in this project": 1,
    }


def test_pairs_are_of_one_task_and_keep_their_sides(people: People) -> None:
    rollouts = make_rollouts(people.project, 3, per_task=3)
    queue = make_queue(people.project, people.owner, mode="pairwise")
    added = add_items(queue, rollouts, actor=people.owner)
    assert (added.added, sum(added.refused.values())) == (3, 3)
    assert add_items(queue, reversed(rollouts), actor=people.owner).already == 3
    for item in ReviewItem.objects.select_related("rollout", "other"):
        assert item.other is not None
        assert item.rollout.task_id == item.other.task_id


def test_sides_are_shuffled_over_many_pairs(people: People) -> None:
    rollouts = make_rollouts(people.project, 40, per_task=2)
    queue = make_queue(people.project, people.owner, rollouts, mode="pairwise")
    assert 8 < queue.items.filter(is_swapped=True).count() < 32


def test_named_reviewers_are_dealt_the_items_in_turn(people: People) -> None:
    queue = make_queue(
        people.project,
        people.owner,
        make_rollouts(people.project, 3),
        reviewers=[people.owner, people.editor],
    )
    add_items(queue, make_rollouts(people.project, 1), actor=people.owner)
    names = [item.assigned.get().username for item in items_of(queue)]
    assert names == [people.owner.username, people.editor.username] * 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"name": " "}, "name: accepts"),
        ({"criteria": ["nonsense"]}, "criteria: nonsense"),
        ({"mode": "triple"}, "mode: accepts single, pairwise"),
        ({"seats": 0}, "accepts 1 to 9"),
        ({"reserve_minutes": 100000}, "accepts 1 to 1440"),
    ],
)
def test_a_queue_that_makes_no_sense_is_refused(
    people: People, wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(ReviewRefused, match=said):
        make_queue(people.project, people.owner, **wrong)


def test_names_rubrics_and_reviewers_are_of_the_project(people: People) -> None:
    make_queue(people.project, people.owner, name="twice")
    with pytest.raises(ReviewRefused, match="already"):
        make_queue(people.project, people.owner, name="twice")
    foreign = make_version(people.stranger.projects.get())
    with pytest.raises(ReviewRefused, match="rubric of this project"):
        make_queue(people.project, people.owner, rubric_version=foreign)
    for nobody in (people.member, people.stranger):
        with pytest.raises(ReviewRefused, match="cannot review here"):
            make_queue(people.project, people.owner, reviewers=[nobody])
    with pytest.raises(ReviewRefused, match="each item needs 2"):
        make_queue(people.project, people.owner, reviewers=[people.editor], seats=2)


def test_viewers_and_strangers_change_nothing(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 1))
    (item,) = items_of(queue)
    for person, refusal in ((people.member, PermissionDenied), (people.stranger, Http404)):
        with pytest.raises(refusal):
            make_queue(people.project, person, rubric_version=queue.rubric_version)
        with pytest.raises(refusal):
            add_items(queue, [], actor=person)
        with pytest.raises(refusal):
            delete_item(actor=person, item=item)
        with pytest.raises(refusal):
            assign(actor=person, item=item, users=[])


def test_an_item_moves_with_its_marks_where_the_same_is_asked(people: People) -> None:
    rollouts = make_rollouts(people.project, 2)
    queue = make_queue(people.project, people.owner, rollouts)
    marked, opened = items_of(queue)
    save_marks(actor=people.editor, item=marked, marks=GOOD)
    take(actor=people.editor, item=opened)
    narrow = make_queue(
        people.project, people.owner, rubric_version=queue.rubric_version, criteria=["correct"]
    )
    with pytest.raises(ReviewRefused, match="something else"):
        move_item(actor=people.owner, item=marked, to=narrow)
    move_item(actor=people.owner, item=opened, to=narrow)
    same = make_queue(people.project, people.owner, rubric_version=queue.rubric_version, seats=2)
    move_item(actor=people.owner, item=marked, to=same)
    (moved,) = items_of(same)
    assert list(moved.seats.values_list("queue_id", "of", "state")) == [(same.pk, 2, "done")]
    assert Annotation.objects.filter(item=moved).count() == 2
    assert not items_of(narrow)[0].seats.exists()
    gone = queries.departure_of(queue, marked.pk)
    assert gone is not None
    assert gone.moved_to == moved


def test_who_deleted_an_item_is_known(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 1))
    (item,) = items_of(queue)
    number = item.pk
    delete_item(actor=people.owner, item=item)
    gone = queries.departure_of(queue, number)
    assert gone is not None
    assert people.owner.username in gone.why
    assert gone.moved_to is None
    assert queries.departure_of(queue, number + 1) is None


def test_an_item_that_went_with_its_rollout_says_so(people: People) -> None:
    rollouts = make_rollouts(people.project, 1)
    queue = make_queue(people.project, people.owner, rollouts)
    (item,) = items_of(queue)
    number = item.pk
    take(actor=people.owner, item=item)
    rollouts[0].delete()
    gone = queries.departure_of(queue, number)
    assert gone is not None
    assert "rollout was deleted" in gone.why


def test_names_with_odd_characters_are_stored(people: People) -> None:
    queue = make_queue(people.project, people.owner, name="a\x00b\ud800", instructions="\x00")
    queue.refresh_from_db()
    assert (queue.name, queue.instructions) == ("a␀b?", "␀")


def test_the_counts_of_any_number_of_queues_are_one_query(
    people: People, django_assert_num_queries: Any
) -> None:
    rollouts = make_rollouts(people.project, 2)
    queues = [make_queue(people.project, people.owner, rollouts, seats=2) for _ in range(3)]
    first = items_of(queues[0])[0]
    save_marks(actor=people.editor, item=first, marks=GOOD)
    with django_assert_num_queries(1):
        mine = queries.counts([queue.pk for queue in queues], people.editor)
    counts = mine[queues[0].pk]
    assert (counts.needs_review, counts.needs_others, counts.completed) == (1, 1, 0)
    save_marks(actor=people.owner, item=first, marks=GOOD)
    counts = queries.counts([queues[0].pk], people.editor)[queues[0].pk]
    assert (counts.needs_review, counts.needs_others, counts.completed) == (1, 0, 1)
