"""Addresses of review, below `…/review/`."""

from __future__ import annotations

from django.urls import path

from orchestrator.web.views import review, review_item

urlpatterns = [
    path("", review.queue_list, name="review"),
    path("new/", review.queue_new, name="review_new"),
    path("add/", review.add, name="review_add"),
    path("<int:queue_id>/", review.queue_detail, name="review_queue"),
    path("<int:queue_id>/delete/", review.queue_delete, name="review_queue_delete"),
    path("<int:queue_id>/change/", review.items_change, name="review_items_change"),
    path("<int:queue_id>/next/", review_item.take_next_item, name="review_next"),
    path("<int:queue_id>/items/<int:item_id>/", review_item.item_page, name="review_item"),
    path("<int:queue_id>/items/<int:item_id>/save/", review_item.save, name="review_save"),
    path("<int:queue_id>/items/<int:item_id>/reserve/", review_item.reserve, name="review_reserve"),
    path("<int:queue_id>/items/<int:item_id>/skip/", review_item.skip_item, name="review_skip"),
    path(
        "<int:queue_id>/items/<int:item_id>/requeue/",
        review_item.requeue_item,
        name="review_requeue",
    ),
    path("<int:queue_id>/items/<int:item_id>/correct/", review_item.correct, name="review_correct"),
    path("<int:queue_id>/items/<int:item_id>/comment/", review_item.say, name="review_comment"),
    path("<int:queue_id>/items/<int:item_id>/keep/", review_item.keep, name="review_keep"),
]
