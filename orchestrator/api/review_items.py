"""Items of a review queue one by one: taken, passed on, talked about."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypedDict

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from orchestrator.api import idempotency, review, work
from orchestrator.api.base import Endpoint, actor_of, chosen, found, operation, page_url, read
from orchestrator.api.making import made_once
from orchestrator.projects.access import project_for_edit, project_for_view
from orchestrator.projects.models import Project
from orchestrator.review import marks, reservations, services
from orchestrator.review.models import ReviewComment, ReviewItem
from orchestrator.review.project_queries import queues_in
from orchestrator.review.queries import comments_of


class NextAnswer(TypedDict):
    item: Annotated[review.ItemAnswer | None, "Null: nothing waits for the caller."]
    html_url: str


class CommentAnswer(TypedDict):
    id: int
    html_url: str
    user: str
    text: str
    created_at: datetime.datetime


class CommentsAnswer(TypedDict):
    items: Annotated[list[CommentAnswer], "Oldest first; at most 200."]
    html_url: str


class CorrectionAnswer(TypedDict):
    text: Annotated[str, "The answer as it should have been; empty: none."]
    html_url: str


class NewComment(serializers.Serializer[Any]):
    text = serializers.CharField(max_length=20_000)


class CorrectionText(serializers.Serializer[Any]):
    text = serializers.CharField(
        max_length=100_000, allow_blank=True, trim_whitespace=False, help_text="Empty removes it."
    )


class ItemMove(serializers.Serializer[Any]):
    queue = work.id_field(help_text="Its id.")


class ItemReviewers(serializers.Serializer[Any]):
    reviewers = serializers.ListField(
        child=serializers.CharField(max_length=150),
        max_length=services.MAX_SEATS,
        help_text="Names of users; none: whoever comes.",
    )


class NextItem(Endpoint):
    area = "review"

    @operation(NextAnswer, says="Reserved for the caller; safe to send twice.")
    def post(self, request: Request, project_id: int, queue_id: int) -> Response:
        """The item that the caller has open, else the next that needs them. Editors."""
        project = project_for_edit(request.user, project_id)
        queue = found(queues_in(project.pk), pk=queue_id)
        item = reservations.take_next(actor=actor_of(request), queue=queue)
        answer: NextAnswer = {
            "item": review.item_answer(request, queue, item) if item else None,
            "html_url": page_url(request, "review_queue", project.pk, queue.pk),
        }
        return Response(answer)


class QueueItem(Endpoint):
    area = "review"

    @operation(review.ItemAnswer)
    def get(self, request: Request, project_id: int, queue_id: int, item_id: int) -> Response:
        """One item."""
        item = item_in(project_for_view(request.user, project_id), queue_id, item_id)
        return Response(review.item_answer(request, item.queue, item))

    @operation(None, status=204, says="Gone; marks stay with their rollouts.")
    def delete(self, request: Request, project_id: int, queue_id: int, item_id: int) -> Response:
        """Deletes it. Editors."""
        item = item_in(project_for_edit(request.user, project_id), queue_id, item_id)
        services.delete_item(actor=actor_of(request), item=item)
        return Response(status=204)


class QueueItemAction(Endpoint):
    area = "review"
    actions: ClassVar[dict[str, Callable[..., Any]]] = {
        "reserve": reservations.take,
        "skip": reservations.skip,
        "requeue": services.requeue,
    }

    @operation(review.ItemAnswer, says="As it is now.")
    def post(
        self, request: Request, project_id: int, queue_id: int, item_id: int, action: str
    ) -> Response:
        """Opens it for the caller, passes it on to others, or puts it last. Editors."""
        project = project_for_edit(request.user, project_id)
        item = item_in(project, queue_id, item_id)
        self.actions[action](actor=actor_of(request), item=item)
        item = item_in(project, queue_id, item_id)
        return Response(review.item_answer(request, item.queue, item))


class QueueItemMove(Endpoint):
    area = "review"

    @operation(
        review.ItemAnswer,
        body=ItemMove,
        parameters=[idempotency.PARAMETER],
        says="In the other queue, with its marks.",
    )
    def post(self, request: Request, project_id: int, queue_id: int, item_id: int) -> Response:
        """Moves it into another queue. Editors."""
        project = project_for_edit(request.user, project_id)
        item = item_in(project, queue_id, item_id)
        asked = read(ItemMove, request.data)
        to = chosen(queues_in(project.pk), "queue", pk=asked["queue"])

        def move() -> ReviewItem:
            services.move_item(actor=actor_of(request), item=item, to=to)
            return item_in(project, to.pk, item.pk)

        return made_once(
            request,
            move,
            lambda moved: review.item_answer(request, moved.queue, moved),
            status=200,
        )


class QueueItemReviewers(Endpoint):
    area = "review"

    @operation(review.ItemAnswer, body=ItemReviewers)
    def put(self, request: Request, project_id: int, queue_id: int, item_id: int) -> Response:
        """Keeps its seats for these people, and for nobody else. Editors."""
        project = project_for_edit(request.user, project_id)
        item = item_in(project, queue_id, item_id)
        names = read(ItemReviewers, request.data)["reviewers"]
        users = review.reviewers_named(project, names)
        services.assign(actor=actor_of(request), item=item, users=users)
        item = item_in(project, queue_id, item_id)
        return Response(review.item_answer(request, item.queue, item))


class QueueItemComments(Endpoint):
    area = "review"

    @operation(CommentsAnswer)
    def get(self, request: Request, project_id: int, queue_id: int, item_id: int) -> Response:
        """What reviewers have said to each other."""
        item = item_in(project_for_view(request.user, project_id), queue_id, item_id)
        page = page_url(request, "review_item", project_id, queue_id, item_id)
        answer: CommentsAnswer = {
            "items": [_comment(row, page) for row in comments_of(item)],
            "html_url": page,
        }
        return Response(answer)

    @operation(
        CommentAnswer,
        body=NewComment,
        parameters=[idempotency.PARAMETER],
        status=201,
        says="Seen by all reviewers at once.",
    )
    def post(self, request: Request, project_id: int, queue_id: int, item_id: int) -> Response:
        """A word to the other reviewers. Editors."""
        item = item_in(project_for_edit(request.user, project_id), queue_id, item_id)
        asked = read(NewComment, request.data)
        page = page_url(request, "review_item", project_id, queue_id, item_id)
        return made_once(
            request,
            lambda: marks.comment(actor=actor_of(request), item=item, text=asked["text"]),
            lambda made: _comment(made, page),
        )


class QueueItemCorrection(Endpoint):
    area = "review"

    @operation(CorrectionAnswer, body=CorrectionText)
    def put(self, request: Request, project_id: int, queue_id: int, item_id: int) -> Response:
        """The answer as it should have been, beside the rollout's own. Editors."""
        item = item_in(project_for_edit(request.user, project_id), queue_id, item_id)
        asked = read(CorrectionText, request.data)
        made = marks.correct_answer(actor=actor_of(request), item=item, text=asked["text"])
        answer: CorrectionAnswer = {
            "text": made.text if made else "",
            "html_url": page_url(request, "review_item", project_id, queue_id, item_id),
        }
        return Response(answer)


def item_in(project: Project, queue_id: int, item_id: int) -> ReviewItem:
    return review.item_of(found(queues_in(project.pk), pk=queue_id), item_id)


def _comment(row: ReviewComment, page: str) -> CommentAnswer:
    return {
        "id": row.pk,
        "html_url": page,
        "user": row.user.get_username(),
        "text": row.text,
        "created_at": row.created_at,
    }
