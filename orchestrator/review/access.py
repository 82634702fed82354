"""Who may see and change queues: members see them, editors and admins review and manage."""

from __future__ import annotations

from django.shortcuts import get_object_or_404

from orchestrator.projects.access import Actor, project_for_edit, project_for_view
from orchestrator.projects.models import Project
from orchestrator.review.models import ReviewItem, ReviewQueue


def queue_for_view(actor: Actor, project_id: int, queue_id: int) -> ReviewQueue:
    return _queue(project_for_view(actor, project_id), queue_id)


def queue_for_edit(actor: Actor, project_id: int, queue_id: int) -> ReviewQueue:
    return _queue(project_for_edit(actor, project_id), queue_id)


def _queue(project: Project, queue_id: int) -> ReviewQueue:
    return get_object_or_404(
        ReviewQueue.objects.select_related("project", "rubric_version__rubric"),
        project=project,
        pk=queue_id,
    )


def item_in(queue: ReviewQueue, item_id: int) -> ReviewItem | None:
    """None when it is not, or no longer, in the queue: callers say which (`departure_of`)."""
    found = (
        ReviewItem.objects.select_related("rollout__task", "rollout__run", "other__task")
        .filter(queue=queue, pk=item_id)
        .first()
    )
    if found is not None:
        found.queue = queue
    return found
