"""Review queues: what people mark, and the marks themselves."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict

from django.http import Http404
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import idempotency, paging, work
from orchestrator.api.base import (
    Endpoint,
    actor_of,
    api_url,
    created,
    found,
    operation,
    page_url,
    read,
)
from orchestrator.api.shapes import page_of
from orchestrator.projects.access import project_for_admin, project_for_edit, project_for_view
from orchestrator.projects.models import Project, User
from orchestrator.review import services
from orchestrator.review.access import item_in
from orchestrator.review.marks import Mark, mark_rollout, save_marks
from orchestrator.review.models import Annotation, QueueMode, ReviewItem, ReviewQueue, SeatState
from orchestrator.review.project_queries import items_with_seats, marks_in, queues_in
from orchestrator.review.queries import people_who_can, rollouts_in
from orchestrator.runs.queries import counted_rollouts_in, finite_or_none


class QueueAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    name: str
    rubric: Annotated[int, "Its id."]
    rubric_version: int
    criteria: Annotated[list[str], "Ids of those to mark; empty: all."]
    instructions: str
    mode: str
    seats: Annotated[int, "Marks wanted for each item, each by another person."]
    is_blind: bool
    n_items: int
    created_at: datetime.datetime


class ItemAnswer(TypedDict):
    id: int
    url: str
    html_url: str
    rollout: int
    other: Annotated[int | None, "The second of a pair."]
    n_done: Annotated[int, "People who have marked it."]
    is_complete: bool
    created_at: datetime.datetime


class AddedAnswer(TypedDict):
    added: int
    already: int
    refused: Annotated[dict[str, int], "Reasons, with how many rollouts each."]
    html_url: str


class MarkAnswer(TypedDict):
    id: int
    html_url: str
    rollout: int
    criterion: str
    user: str
    state: str
    value: float | None
    preference: Annotated[str, "Of a pair: a, b or e."]
    note: str
    updated_at: datetime.datetime


class MarksAnswer(TypedDict):
    marked: Annotated[int, "Criteria."]
    html_url: str


class NewQueue(serializers.Serializer[Any]):
    name = serializers.CharField(max_length=120)
    rubric = work.id_field(help_text="Its id.")
    rubric_version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)
    criteria = serializers.ListField(
        child=serializers.CharField(max_length=64), default=list, max_length=200
    )
    instructions = serializers.CharField(max_length=20_000, default="", allow_blank=True)
    mode = serializers.ChoiceField(QueueMode.choices, default=QueueMode.SINGLE)
    seats = serializers.IntegerField(min_value=1, max_value=services.MAX_SEATS, default=1)
    reviewers = serializers.ListField(
        child=serializers.CharField(max_length=150),
        default=list,
        max_length=100,
        help_text="Names of users; none: whoever comes.",
    )
    is_blind = serializers.BooleanField(default=True)
    reserve_minutes = serializers.IntegerField(
        min_value=1, max_value=services.LONGEST_RESERVATION_MIN, default=20
    )


class NewItems(serializers.Serializer[Any]):
    rollouts = serializers.ListField(
        child=work.id_field(), min_length=1, max_length=services.MOST_AT_ONCE
    )


class MarkGiven(serializers.Serializer[Any]):
    said = serializers.CharField(
        max_length=40, help_text="A value on the criterion's scale, or `na`; of a pair a, b or e."
    )
    note = serializers.CharField(max_length=20_000, default="", allow_blank=True)


class GivenMarks(serializers.Serializer[Any]):
    marks = serializers.DictField(
        child=MarkGiven(), help_text="By id of the criterion; all that the queue asks for."
    )


class RolloutMarks(GivenMarks):
    rubric = work.id_field(help_text="Its id.")
    rubric_version = serializers.IntegerField(min_value=1, max_value=10**9, required=False)


class MarksQuery(serializers.Serializer[Any]):
    rubric = work.id_field(required=False)
    rollout = work.id_field(required=False)


class Queues(Endpoint):
    area = "review"

    @operation(page_of(QueueAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """The review queues of a project, newest first."""
        project = project_for_view(request.user, project_id)
        return Response(
            paging.paged(
                request,
                queues_in(project.pk),
                lambda rows: [queue_answer(request, row) for row in rows],
                html_url=page_url(request, "review", project.pk),
            )
        )

    @operation(
        QueueAnswer, body=NewQueue, parameters=[idempotency.PARAMETER], status=201, says="Made."
    )
    def post(self, request: Request, project_id: int) -> Response:
        """A queue for people to mark rollouts by a rubric. Editors."""
        project = project_for_edit(request.user, project_id)
        asked = read(NewQueue, request.data)
        spec = services.QueueSpec(
            name=asked["name"],
            rubric_version=work.rubric_version(
                project, asked["rubric"], asked.get("rubric_version")
            ),
            criteria=asked["criteria"],
            instructions=asked["instructions"],
            mode=asked["mode"],
            seats=asked["seats"],
            reviewers=reviewers_named(project, asked["reviewers"]),
            is_blind=asked["is_blind"],
            reserve_minutes=asked["reserve_minutes"],
        )

        def make() -> Response:
            queue = services.create_queue(actor=actor_of(request), project=project, spec=spec)
            answer = queue_answer(request, found(queues_in(project.pk), pk=queue.pk))
            return created(request, answer, answer["url"])

        return idempotency.once(request, make)


class QueueDetail(Endpoint):
    area = "review"

    @operation(QueueAnswer)
    def get(self, request: Request, project_id: int, queue_id: int) -> Response:
        """One queue."""
        project = project_for_view(request.user, project_id)
        return Response(queue_answer(request, found(queues_in(project.pk), pk=queue_id)))

    @operation(None, status=204, says="Gone; marks stay with their rollouts.")
    def delete(self, request: Request, project_id: int, queue_id: int) -> Response:
        """Deletes it with the record of who had which item. Admins."""
        project = project_for_admin(request.user, project_id)
        services.delete_queue(
            actor=actor_of(request), queue=found(queues_in(project.pk), pk=queue_id)
        )
        return Response(status=204)


class QueueItems(Endpoint):
    area = "review"

    @operation(page_of(ItemAnswer), parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int, queue_id: int) -> Response:
        """What is to be marked, in the order it was added."""
        project = project_for_view(request.user, project_id)
        queue = found(queues_in(project.pk), pk=queue_id)
        return Response(
            paging.paged(
                request,
                items_with_seats(queue.pk),
                lambda rows: [item_answer(request, queue, row) for row in rows],
                html_url=page_url(request, "review_queue", project.pk, queue.pk),
                newest_first=False,
            )
        )

    @operation(
        AddedAnswer, body=NewItems, parameters=[idempotency.PARAMETER], says="What came of it."
    )
    def post(self, request: Request, project_id: int, queue_id: int) -> Response:
        """Adds rollouts; those that are there stay where they are. Editors."""
        project = project_for_edit(request.user, project_id)
        queue = found(queues_in(project.pk), pk=queue_id)
        asked = read(NewItems, request.data)

        def add() -> Response:
            rollouts = rollouts_in(project.pk, asked["rollouts"])
            outcome = services.add_items(queue, rollouts, actor=actor_of(request))
            refused = dict(outcome.refused)
            if missing := len(set(asked["rollouts"])) - len(rollouts):
                refused["not in this project"] = missing
            answer: AddedAnswer = {
                "added": outcome.added,
                "already": outcome.already,
                "refused": refused,
                "html_url": page_url(request, "review_queue", project.pk, queue.pk),
            }
            return Response(answer)

        return idempotency.once(request, add)


class QueueItemMarks(Endpoint):
    area = "review"

    @operation(MarksAnswer, body=GivenMarks, says="Saved as the caller's own.")
    def put(self, request: Request, project_id: int, queue_id: int, item_id: int) -> Response:
        """Marks an item of a queue, all its criteria at once. Editors."""
        project = project_for_edit(request.user, project_id)
        queue = found(queues_in(project.pk), pk=queue_id)
        item = item_of(queue, item_id)
        asked = read(GivenMarks, request.data)
        save_marks(actor=actor_of(request), item=item, marks=marks_of(asked))
        answer: MarksAnswer = {
            "marked": len(asked["marks"]),
            "html_url": page_url(request, "review_item", project.pk, queue.pk, item.pk),
        }
        return Response(answer)


class Annotations(Endpoint):
    area = "review"

    @operation(page_of(MarkAnswer), query=MarksQuery, parameters=paging.PARAMETERS)
    def get(self, request: Request, project_id: int) -> Response:
        """What people have marked, newest first."""
        project = project_for_view(request.user, project_id)
        asked = read(MarksQuery, request.query_params)
        return Response(
            paging.paged(
                request,
                marks_in(project.pk).filter(
                    **{f"{name}_id": value for name, value in asked.items()}
                ),
                lambda rows: [mark_answer(request, project.pk, row) for row in rows],
                html_url=page_url(request, "review", project.pk),
            )
        )


class RolloutAnnotations(Endpoint):
    area = "review"

    @operation(MarksAnswer, body=RolloutMarks, says="Saved as the caller's own.")
    def put(self, request: Request, project_id: int, rollout_id: int) -> Response:
        """Marks a rollout outside any queue, by any of a rubric's criteria. Editors."""
        project = project_for_edit(request.user, project_id)
        rollout = found(counted_rollouts_in(project.pk), pk=rollout_id)
        asked = read(RolloutMarks, request.data)
        version = work.rubric_version(project, asked["rubric"], asked.get("rubric_version"))
        marked = mark_rollout(
            actor=actor_of(request), rollout=rollout, version=version, marks=marks_of(asked)
        )
        page = page_url(request, "rollout", project.pk, rollout.pk)
        answer: MarksAnswer = {"marked": marked, "html_url": page}
        return Response(answer)


def item_of(queue: ReviewQueue, item_id: int) -> ReviewItem:
    """Or 404, also for one that has left the queue."""
    item = item_in(queue, item_id)
    if item is None:
        raise Http404("No such object.")
    return item


def reviewers_named(project: Project, names: Sequence[str]) -> list[User]:
    """Each once, in their order. Raises ValidationError for who cannot mark in the project."""
    people = {user.username: user for user in people_who_can(project.pk)}
    if unknown := [name for name in names if name not in people]:
        raise ValidationError({"reviewers": [f"{unknown[0]!r} cannot mark in this project"]})
    return [people[name] for name in dict.fromkeys(names)]


def marks_of(asked: dict[str, Any]) -> dict[str, Mark]:
    return {id: Mark(said=mark["said"], note=mark["note"]) for id, mark in asked["marks"].items()}


def queue_answer(request: Request, queue: ReviewQueue) -> QueueAnswer:
    where = (queue.project_id, queue.pk)
    return {
        "id": queue.pk,
        "url": api_url(request, "review_queue", *where),
        "html_url": page_url(request, "review_queue", *where),
        "name": queue.name,
        "rubric": queue.rubric_version.rubric_id,
        "rubric_version": queue.rubric_version.number,
        "criteria": queue.criteria,
        "instructions": queue.instructions,
        "mode": queue.mode,
        "seats": queue.seats,
        "is_blind": queue.is_blind,
        "n_items": len(queue.items.all()),
        "created_at": queue.created_at,
    }


def item_answer(request: Request, queue: ReviewQueue, item: ReviewItem) -> ItemAnswer:
    n_done = sum(seat.state == SeatState.DONE for seat in item.seats.all())
    where = (queue.project_id, queue.pk, item.pk)
    return {
        "id": item.pk,
        "url": api_url(request, "review_item", *where),
        "html_url": page_url(request, "review_item", *where),
        "rollout": item.rollout_id,
        "other": item.other_id,
        "n_done": n_done,
        "is_complete": n_done >= queue.seats,
        "created_at": item.created_at,
    }


def mark_answer(request: Request, project_id: int, mark: Annotation) -> MarkAnswer:
    return {
        "id": mark.pk,
        "html_url": page_url(request, "rollout", project_id, mark.rollout_id),
        "rollout": mark.rollout_id,
        "criterion": mark.criterion,
        "user": mark.user.get_username(),
        "state": mark.state,
        "value": finite_or_none(mark.value),
        "preference": mark.preference,
        "note": mark.note,
        "updated_at": mark.updated_at,
    }
