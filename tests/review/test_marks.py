"""Marks of criteria, of pairs and of rollouts, and what becomes of them."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.review.errors import ReviewRefused, SeatLost
from orchestrator.review.marks import Mark, comment, correct_answer, mark_rollout, save_marks
from orchestrator.review.models import Annotation, Correction, ReviewEntry, ReviewSeat
from orchestrator.review.reservations import take
from orchestrator.review.scales import scales_of
from orchestrator.review.services import delete_item, delete_queue, requeue
from orchestrator.review.splits import is_held_out
from tests.base import People
from tests.review.build import BAD, GOOD, SPEC, items_of, make_queue, make_rollouts

pytestmark = pytest.mark.django_db


def test_marks_are_kept_on_the_scale_from_zero_to_one(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 1))
    (item,) = items_of(queue)
    save_marks(
        actor=people.editor,
        item=item,
        marks={"correct": Mark("0", "off by one"), "tone": Mark("4")},
    )
    correct, tone = Annotation.objects.order_by("criterion")
    assert (correct.state, correct.value, correct.note) == ("scored", 0.0, "off by one")
    assert (tone.state, tone.value) == ("scored", 0.75)
    assert correct.rollout_id == item.rollout_id
    assert correct.is_held_out == is_held_out(item.rollout_id)
    assert ReviewSeat.objects.get().state == "done"


def test_one_mark_that_is_missing_or_off_the_scale_saves_none(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 1))
    (item,) = items_of(queue)
    with pytest.raises(ReviewRefused, match=r"right: not marked yet; .*accepts 1, 2, 3, 4, 5, n/a"):
        save_marks(actor=people.editor, item=item, marks={"tone": Mark("6")})
    for said in ("nan", "inf", "0.5", "", "yes"):
        with pytest.raises(ReviewRefused):
            save_marks(actor=people.editor, item=item, marks={**GOOD, "correct": Mark(said)})
    assert not Annotation.objects.exists()
    assert not ReviewSeat.objects.exists()


def test_own_marks_can_be_changed_and_the_record_keeps_both(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 1))
    (item,) = items_of(queue)
    save_marks(actor=people.editor, item=item, marks=GOOD)
    save_marks(actor=people.editor, item=item, marks=BAD)
    save_marks(actor=people.editor, item=item, marks=BAD)
    assert Annotation.objects.get(criterion="tone").state == "not_applicable"
    changed, marked = ReviewEntry.objects.filter(deed__in=("marked", "changed"))
    assert (marked.user, marked.detail["after"]["correct"]["value"]) == (people.editor, 1.0)
    assert changed.detail["before"]["correct"]["value"] == 1.0
    assert changed.detail["after"]["correct"]["value"] == 0.0


def test_marks_without_a_free_seat_are_refused(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 1))
    (item,) = items_of(queue)
    take(actor=people.owner, item=item)
    with pytest.raises(SeatLost, match=f"taken by {people.owner.username}"):
        save_marks(actor=people.editor, item=item, marks=GOOD)
    assert not Annotation.objects.exists()


def test_a_preference_is_of_the_rollout_whichever_side_it_was_shown_on(people: People) -> None:
    rollouts = make_rollouts(people.project, 2, per_task=2)
    queue = make_queue(people.project, people.owner, rollouts, mode="pairwise")
    item, _ = items_of(queue)
    assert (item.rollout_id, item.other_id) == (rollouts[0].pk, rollouts[1].pk)
    with pytest.raises(ReviewRefused, match="choose A, B or equal"):
        save_marks(actor=people.editor, item=item, marks={"correct": Mark("a")})
    save_marks(actor=people.editor, item=item, marks={"correct": Mark("a"), "tone": Mark("e")})
    marks = Annotation.objects.order_by("criterion").values_list("preference", "value")
    assert list(marks) == [("a", None), ("e", None)]


def test_requeueing_withdraws_the_own_marks_and_frees_the_seat(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 2))
    first, second = items_of(queue)
    save_marks(actor=people.editor, item=first, marks=GOOD)
    requeue(actor=people.editor, item=first)
    assert not Annotation.objects.exists()
    assert items_of(queue) == [second, first]
    entry = ReviewEntry.objects.get(deed="requeued")
    assert entry.detail["before"]["tone"]["note"] == "short"
    save_marks(actor=people.owner, item=first, marks=GOOD)


def test_marks_outlive_their_item(people: People) -> None:
    rollouts = make_rollouts(people.project, 1)
    queue = make_queue(people.project, people.owner, rollouts)
    again = make_queue(people.project, people.owner, rollouts, rubric_version=queue.rubric_version)
    save_marks(actor=people.editor, item=items_of(queue)[0], marks=GOOD)
    save_marks(actor=people.editor, item=items_of(again)[0], marks=BAD)
    delete_item(actor=people.owner, item=items_of(queue)[0])
    delete_item(actor=people.owner, item=items_of(again)[0])
    marks = Annotation.objects.filter(rollout=rollouts[0], user=people.editor, item=None)
    assert {m.criterion: m.value for m in marks} == {"correct": 0.0, "tone": None}


def test_marks_outlive_their_queue_which_admins_alone_may_delete(people: People) -> None:
    rollouts = make_rollouts(people.project, 2)
    queue = make_queue(people.project, people.owner, rollouts)
    for item in items_of(queue):
        save_marks(actor=people.editor, item=item, marks=GOOD)
    with pytest.raises(PermissionDenied):
        delete_queue(actor=people.editor, queue=queue)
    delete_queue(actor=people.owner, queue=queue)
    assert Annotation.objects.filter(item=None).count() == 4


def test_an_answer_is_corrected_beside_the_original(people: People) -> None:
    rollouts = make_rollouts(people.project, 1)
    queue = make_queue(people.project, people.owner, rollouts)
    (item,) = items_of(queue)
    correct_answer(actor=people.editor, item=item, text=" 4 \x00")
    rollouts[0].refresh_from_db()
    assert (rollouts[0].answer, Correction.objects.get().text) == ("3", "4 ␀")
    correct_answer(actor=people.editor, item=item, text="")
    assert not Correction.objects.exists()
    assert ReviewEntry.objects.filter(deed="corrected").count() == 2


def test_a_rollout_can_be_marked_outside_any_queue(people: People) -> None:
    (rollout,) = make_rollouts(people.project, 1)
    version = make_queue(people.project, people.owner).rubric_version
    for said in ("1", "0"):
        n = mark_rollout(
            actor=people.editor, rollout=rollout, version=version, marks={"correct": Mark(said)}
        )
        assert n == 1
    assert Annotation.objects.get().value == 0.0
    with pytest.raises(ReviewRefused, match="nonsense"):
        mark_rollout(
            actor=people.editor, rollout=rollout, version=version, marks={"nonsense": Mark("1")}
        )


def test_comments_need_text(people: People) -> None:
    queue = make_queue(people.project, people.owner, make_rollouts(people.project, 1))
    (item,) = items_of(queue)
    assert comment(actor=people.editor, item=item, text="see E4").item == item
    with pytest.raises(ReviewRefused):
        comment(actor=people.editor, item=item, text="  ")


def test_about_half_of_the_rollouts_are_held_out() -> None:
    assert 450 < sum(is_held_out(n) for n in range(1000)) < 550


def test_the_keys_of_a_criterion_follow_its_scale() -> None:
    correct, tone = scales_of(SPEC)
    assert [(c.key, c.label) for c in correct.choices] == [("1", "yes"), ("2", "no"), ("3", "n/a")]
    assert [c.key for c in tone.choices] == ["1", "2", "3", "4", "5", "6"]
    assert tone.choices[4].text == "the result and nothing else"


@given(low=st.integers(-5, 5), size=st.integers(1, 30), part=st.floats(0, 1))
def test_what_was_said_comes_back_from_the_stored_value(low: int, size: int, part: float) -> None:
    params: dict[str, Any] = {"scale": "scale", "min": low, "max": low + size}
    (scale,) = scales_of({"criteria": [{"id": "c", "kind": "judge", "params": params}]})
    said = str(low + round(part * size))
    state, value = scale.read(said)
    assert value is not None
    assert 0 <= value <= 1
    assert scale.said_of(state, value) == said
    with pytest.raises(ValueError, match="accepts"):
        scale.read(str(low + size + 1))
