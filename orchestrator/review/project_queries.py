"""What the API reads of the review of a project: its queues, what is in them, what people said."""

from __future__ import annotations

from django.db.models import QuerySet

from orchestrator.grading.models import Alignment
from orchestrator.review.models import Annotation, ReviewItem, ReviewQueue


def queues_in(project_id: int) -> QuerySet[ReviewQueue]:
    queues = ReviewQueue.objects.filter(project_id=project_id)
    return queues.select_related("project", "rubric_version__rubric").prefetch_related("items")


def items_with_seats(queue_id: int) -> QuerySet[ReviewItem]:
    return ReviewItem.objects.filter(queue_id=queue_id).prefetch_related("seats")


def marks_in(project_id: int) -> QuerySet[Annotation]:
    """Given in queues and outside of them."""
    return Annotation.objects.filter(rollout__run__project_id=project_id).select_related("user")


def alignments_in(project_id: int) -> QuerySet[Alignment]:
    alignments = Alignment.objects.filter(version__rubric__project_id=project_id)
    return alignments.select_related("version__rubric__project", "job")
