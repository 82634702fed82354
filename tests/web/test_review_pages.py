"""Pages of review: who may do what, what is hidden until marked, and what is never lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from orchestrator.projects.models import User
from orchestrator.review.marks import Mark, save_marks
from orchestrator.review.models import Annotation, ReviewItem, ReviewQueue, ReviewSeat
from orchestrator.review.reservations import take
from orchestrator.review.services import delete_item, move_item
from tests.base import People
from tests.review.build import BAD, GOOD, items_of, make_queue, make_rollouts
from tests.web.build import make_trace

pytestmark = pytest.mark.django_db

PAGES = {"review", "review_queue", "review_item"}
FOR_EDITORS = {"review_new"}
WRITES = {
    *("review_add", "review_queue_delete", "review_items_change", "review_next", "review_save"),
    *("review_reserve", "review_skip", "review_requeue", "review_correct", "review_comment"),
    "review_keep",
}
OF_QUEUES = {"review_queue", "review_next", "review_queue_delete", "review_items_change"}
FORM = {"mark-correct": "1", "mark-tone": "4", "note-tone": "wordy"}


@pytest.fixture
def queue(people: People) -> ReviewQueue:
    rollouts = make_rollouts(people.project, 3)
    make_trace(rollouts[0])
    return make_queue(people.project, people.owner, rollouts, instructions="Only the final line.")


def signed_in(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def url(name: str, queue: ReviewQueue, item: ReviewItem | None = None) -> str:
    arguments = [queue.project_id]
    if name not in {"review", "review_new", "review_add"}:
        arguments.append(queue.pk)
    if name not in OF_QUEUES and len(arguments) == 2:
        assert item is not None
        arguments.append(item.pk)
    return reverse(f"web:{name}", args=arguments)


def text_of(response: Any) -> str:
    return re.sub(r"\s+", " ", response.content.decode())


@pytest.mark.parametrize("name", sorted(PAGES))
def test_members_see_the_page_and_strangers_learn_nothing(
    people: People, queue: ReviewQueue, name: str
) -> None:
    address = url(name, queue, items_of(queue)[0])
    for user in (people.owner, people.editor, people.member):
        assert signed_in(user).get(address).status_code == 200
    assert signed_in(people.stranger).get(address).status_code == 404
    assert Client().get(address).status_code == 302


@pytest.mark.parametrize("name", sorted(WRITES | FOR_EDITORS))
def test_viewers_review_nothing(people: People, queue: ReviewQueue, name: str) -> None:
    address = url(name, queue, items_of(queue)[0])
    assert signed_in(people.member).post(address, FORM).status_code == 403
    assert signed_in(people.stranger).post(address, FORM).status_code == 404
    if name in WRITES:
        assert signed_in(people.owner).get(address).status_code == 405
    assert not Annotation.objects.exists()
    assert not ReviewSeat.objects.exists()


def test_looking_at_an_item_reserves_nothing(people: People, queue: ReviewQueue) -> None:
    signed_in(people.editor).get(url("review_item", queue, items_of(queue)[0]))
    assert not ReviewSeat.objects.exists()


def test_next_opens_an_item_and_done_goes_to_the_one_after(
    people: People, queue: ReviewQueue
) -> None:
    first, second, third = items_of(queue)
    client = signed_in(people.editor)
    response = client.post(url("review_next", queue))
    assert response["Location"] == url("review_item", queue, first)
    for item, following in ((first, second), (second, third)):
        response = client.post(url("review_save", queue, item), {**FORM, "then": "next"})
        assert response["Location"] == f"{url('review_item', queue, following)}?after={item.pk}"
    response = client.post(url("review_save", queue, third), FORM, follow=True)
    assert "All done" in text_of(response)
    assert Annotation.objects.get(item=first, criterion="tone").value == 0.75


def test_grades_are_hidden_until_the_person_has_marked(people: People, queue: ReviewQueue) -> None:
    item = items_of(queue)[0]
    client = signed_in(people.editor)
    page = text_of(client.get(url("review_item", queue, item)))
    assert "3 list1.txt" in page, "the transcript is there"
    assert "the environment gave 1.00" not in page
    assert "1.00" not in page.split("</header>")[1]
    client.post(url("review_save", queue, item), {**FORM, "mark-correct": "0"})
    page = text_of(client.get(url("review_item", queue, item)))
    assert "the environment gave 1.00" in page
    assert "not graded by this rubric" in page.split("You and the rubric")[1]


def test_agreement_with_the_rubric_is_shown_afterwards(people: People) -> None:
    (rollout,) = make_rollouts(people.project, 1)
    make_trace(rollout)
    version = rollout.run.rubric_version
    queue = make_queue(people.project, people.owner, [rollout], rubric_version=version)
    (item,) = items_of(queue)
    client = signed_in(people.editor)
    assert "the environment gave" not in text_of(client.get(url("review_item", queue, item)))
    client.post(url("review_save", queue, item), {"mark-correct": "0"})
    page = text_of(client.get(url("review_item", queue, item)))
    assert "the environment gave 1.00" in page
    assert "differ" in page.split("You and the rubric")[1]


def test_others_marks_are_hidden_before_the_own_ones(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 1), seats=2)
    (item,) = items_of(queue)
    marks = {**GOOD, "tone": Mark("5", "nothing-too-much")}
    save_marks(actor=people.owner, item=item, marks=marks)
    client = signed_in(people.editor)
    assert "nothing-too-much" not in text_of(client.get(url("review_item", queue, item)))
    client.post(url("review_save", queue, item), FORM)
    assert "nothing-too-much" in text_of(client.get(url("review_item", queue, item)))


def test_what_is_missing_is_named_and_what_was_marked_stays(
    people: People, queue: ReviewQueue
) -> None:
    item = items_of(queue)[0]
    response = signed_in(people.editor).post(
        url("review_save", queue, item), {"mark-tone": "4", "note-tone": "a <b>wordy</b> one"}
    )
    assert response.status_code == 422
    page = text_of(response)
    assert "Not saved: The answer is right: not marked yet" in page
    assert re.search(r'value="4" data-key="4" checked', page)
    assert "a &lt;b&gt;wordy&lt;/b&gt; one" in page


def test_a_deleted_item_says_who_did_it_and_keeps_the_marks(
    people: People, queue: ReviewQueue
) -> None:
    item = items_of(queue)[0]
    client = signed_in(people.editor)
    client.post(url("review_next", queue))
    number, rollout = item.pk, item.rollout_id
    delete_item(actor=people.owner, item=item)
    item.pk = number
    response = client.post(url("review_save", queue, item), {**FORM, "rollout": rollout})
    assert response.status_code == 410
    page = text_of(response)
    assert f"{people.owner.username} deleted this item" in page
    assert "wordy" in page
    reserve = client.post(url("review_reserve", queue, item))
    assert (reserve.status_code, json.loads(reserve.content)["state"]) == (410, "gone")
    client.post(url("review_keep", queue, item), {**FORM, "rollout": rollout})
    kept = Annotation.objects.filter(item=None, rollout_id=rollout, user=people.editor)
    assert {mark.criterion: mark.value for mark in kept} == {"correct": 1.0, "tone": 0.75}


def test_a_moved_item_offers_to_save_where_it_is(people: People, queue: ReviewQueue) -> None:
    item = items_of(queue)[0]
    other = make_queue(
        people.project, people.owner, rubric_version=queue.rubric_version, name="elsewhere"
    )
    move_item(actor=people.owner, item=item, to=other)
    client = signed_in(people.editor)
    response = client.post(url("review_save", queue, item), {**FORM, "rollout": item.rollout_id})
    assert response.status_code == 410
    there = reverse("web:review_save", args=[queue.project_id, other.pk, item.pk])
    assert "elsewhere" in text_of(response) and there in text_of(response)
    client.post(there, FORM)
    assert Annotation.objects.filter(item=item).count() == 2


def test_a_lost_seat_keeps_the_marks_on_the_page(people: People, queue: ReviewQueue) -> None:
    item = items_of(queue)[0]
    take(actor=people.owner, item=item)
    client = signed_in(people.editor)
    assert client.post(url("review_reserve", queue, item)).status_code == 409
    response = client.post(url("review_save", queue, item), FORM)
    assert response.status_code == 409
    assert f"taken by {people.owner.username}" in text_of(response)


def test_skip_and_requeue_go_on_to_the_next(people: People, queue: ReviewQueue) -> None:
    first, second, third = items_of(queue)
    client = signed_in(people.editor)
    client.post(url("review_next", queue))
    response = client.post(url("review_skip", queue, first))
    assert response["Location"] == url("review_item", queue, second)
    response = client.post(url("review_requeue", queue, second))
    assert response["Location"] == url("review_item", queue, third)


def test_a_correction_keeps_the_marks_that_are_not_saved_yet(
    people: People, queue: ReviewQueue
) -> None:
    item = items_of(queue)[0]
    response = signed_in(people.editor).post(
        url("review_correct", queue, item), {**FORM, "correction": "4 lines"}
    )
    page = text_of(response)
    assert "4 lines" in page and "wordy" in page
    item.rollout.refresh_from_db()
    assert item.rollout.answer == "3"


def test_comments_are_seen_by_other_reviewers_at_once(people: People, queue: ReviewQueue) -> None:
    item = items_of(queue)[0]
    signed_in(people.editor).post(url("review_comment", queue, item), {"comment": "see E4"})
    assert "see E4" in text_of(signed_in(people.owner).get(url("review_item", queue, item)))


def test_a_preference_is_stored_for_the_rollout_and_not_for_the_side(people: People) -> None:
    rollouts = make_rollouts(people.project, 8, per_task=2)
    queue = make_queue(people.project, people.owner, rollouts, mode="pairwise")
    swapped = next(item for item in items_of(queue) if item.is_swapped)
    straight = next(item for item in items_of(queue) if not item.is_swapped)
    client = signed_in(people.editor)
    for item in (swapped, straight):
        assert item.other is not None
        left = item.other if item.is_swapped else item.rollout
        page = client.get(url("review_item", queue, item)).content.decode()
        assert page.index(f'data-stream="{left.stream_id}"') == page.index("data-stream=")
        client.post(url("review_save", queue, item), {"mark-correct": "left", "mark-tone": "e"})
        mark = Annotation.objects.get(item=item, criterion="correct")
        assert mark.preference == ("a" if left == item.rollout else "b")
        page = text_of(client.get(url("review_item", queue, item)))
        assert re.search(r'name="mark-correct" value="left" data-key="a" checked', page)


def test_a_queue_is_made_with_ticked_rollouts(people: People) -> None:
    rollouts = make_rollouts(people.project, 3)
    version = make_queue(people.project, people.owner).rubric_version
    client = signed_in(people.editor)
    page = client.post(
        reverse("web:review_add", args=[people.project.pk]),
        {"queue": "", "rollout": [rollouts[0].pk, rollouts[2].pk]},
    )
    assert "2 chosen rollouts" in text_of(page)
    form = {
        "name": "Odd ones",
        "rubric_version": version.pk,
        f"criteria-{version.pk}": ["tone"],
        "mode": "single",
        "seats": "2",
        "reserve_minutes": "5",
        "is_blind": "off",
        "reviewers": [people.owner.pk, people.editor.pk],
        "rollouts": f"{rollouts[0].pk},{rollouts[2].pk}",
    }
    address = reverse("web:review_new", args=[people.project.pk])
    refused = client.post(address, {**form, "seats": "3"})
    assert refused.status_code == 422
    assert "each item needs 3" in text_of(refused) and "Odd ones" in text_of(refused)
    client.post(address, form)
    queue = ReviewQueue.objects.get(name="Odd ones")
    assert (queue.criteria, queue.seats, queue.is_blind) == (["tone"], 2, False)
    assert [item.rollout_id for item in items_of(queue)] == [rollouts[0].pk, rollouts[2].pk]


def test_failed_rollouts_of_a_run_can_be_sampled(people: People, queue: ReviewQueue) -> None:
    rollouts = make_rollouts(people.project, 6)
    for rollout in rollouts[:4]:
        rollout.score = 0.0
        rollout.save()
    client = signed_in(people.editor)
    form = {"queue": queue.pk, "run": rollouts[0].run_id, "outcome": "failed", "at_most": "3"}
    for _ in range(2):
        client.post(reverse("web:review_add", args=[people.project.pk]), form)
    added = {item.rollout_id for item in items_of(queue)} & {r.pk for r in rollouts}
    assert len(added) == 3
    assert added <= {r.pk for r in rollouts[:4]}


def test_items_are_assigned_moved_and_deleted_in_bulk(people: People, queue: ReviewQueue) -> None:
    items = items_of(queue)
    other = make_queue(people.project, people.owner, rubric_version=queue.rubric_version)
    client = signed_in(people.editor)
    address = url("review_items_change", queue)
    client.post(address, {"what": "assign", "item": [items[0].pk], "user": people.owner.pk})
    assert items[0].assigned.get() == people.owner
    client.post(address, {"what": "move", "item": [items[1].pk], "to": other.pk})
    client.post(address, {"what": "delete", "item": [items[2].pk]})
    assert (items_of(queue), items_of(other)) == ([items[0]], [items[1]])
    assert "Tick items first" in text_of(client.post(address, {"what": "delete"}, follow=True))


def test_the_rail_counts_what_needs_the_person(people: People, queue: ReviewQueue) -> None:
    first, second, _ = items_of(queue)
    save_marks(actor=people.owner, item=first, marks=BAD)
    take(actor=people.owner, item=second)

    def counted(user: User) -> str:
        page = text_of(signed_in(user).get(reverse("web:review", args=[people.project.pk])))
        found = re.search(r"waiting for you: </span>(\d+)", page)
        return found[1] if found else ""

    assert (counted(people.owner), counted(people.editor), counted(people.member)) == (
        "2",
        "1",
        "",
    )


def test_the_run_page_offers_ticks_to_editors_alone(people: People) -> None:
    rollouts = make_rollouts(people.project, 1)
    address = reverse("web:run", args=[people.project.pk, rollouts[0].run_id])
    assert "Add to review queue" in text_of(signed_in(people.editor).get(address))
    assert "Add to review queue" not in text_of(signed_in(people.member).get(address))


def test_an_empty_list_names_the_next_action(people: People) -> None:
    address = reverse("web:review", args=[people.project.pk])
    client = signed_in(people.editor)
    assert "no rubric yet" in text_of(client.get(address))
    make_queue(people.project, people.owner).delete()
    assert "No review queue yet" in text_of(client.get(address))


def test_the_queries_of_the_list_and_the_item_are_fixed(
    people: People, queue: ReviewQueue, django_assert_max_num_queries: Any
) -> None:
    client = signed_in(people.editor)
    for n in (1, 2):
        for _ in range(n):
            make_queue(people.project, people.owner, make_rollouts(people.project, 3))
        with django_assert_max_num_queries(8 + 4):
            client.get(reverse("web:review", args=[people.project.pk]))
        with django_assert_max_num_queries(8 + 15):
            client.get(url("review_item", queue, items_of(queue)[0]))
