"""Addresses of review queues and of what people mark, below `projects/<id>/`."""

from __future__ import annotations

from django.urls import URLPattern, path

from orchestrator.api import looks, review, review_items

ITEM = "review/queues/<id:queue_id>/items/<id:item_id>"
LOOK = "rollouts/<id:rollout_id>/looks/<id:job_id>/<id:step>"

urlpatterns: list[URLPattern] = [
    path("review/queues", review.Queues.as_view(), name="review_queues"),
    path("review/queues/<id:queue_id>", review.QueueDetail.as_view(), name="review_queue"),
    path(
        "review/queues/<id:queue_id>/items",
        review.QueueItems.as_view(),
        name="review_items",
    ),
    path(
        "review/queues/<id:queue_id>/items/<id:item_id>/marks",
        review.QueueItemMarks.as_view(),
        name="review_marks",
    ),
    path("review/annotations", review.Annotations.as_view(), name="annotations"),
    path(
        "rollouts/<id:rollout_id>/annotations",
        review.RolloutAnnotations.as_view(),
        name="rollout_annotations",
    ),
    path("review/queues/<id:queue_id>/next", review_items.NextItem.as_view(), name="review_next"),
    path(ITEM, review_items.QueueItem.as_view(), name="review_item"),
    *(
        path(
            f"{ITEM}/{action}",
            review_items.QueueItemAction.as_view(),
            {"action": action},
            name=f"review_item_{action}",
        )
        for action in review_items.QueueItemAction.actions
    ),
    path(f"{ITEM}/move", review_items.QueueItemMove.as_view(), name="review_item_move"),
    path(
        f"{ITEM}/reviewers", review_items.QueueItemReviewers.as_view(), name="review_item_reviewers"
    ),
    path(f"{ITEM}/comments", review_items.QueueItemComments.as_view(), name="review_item_comments"),
    path(
        f"{ITEM}/correction",
        review_items.QueueItemCorrection.as_view(),
        name="review_item_correction",
    ),
    path(LOOK, looks.TokenLook.as_view(), name="look"),
    path(f"{LOOK}/events", looks.TokenLookEvents.as_view(), name="look_events"),
]
