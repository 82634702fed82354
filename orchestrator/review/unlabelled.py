"""Rollouts that nobody has marked, put into a review queue to calibrate a criterion by."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.projects.models import User
from orchestrator.review.calibration_queries import unlabelled
from orchestrator.review.errors import ReviewRefused
from orchestrator.review.models import ReviewQueue
from orchestrator.review.services import Added, QueueSpec, add_items, create_queue
from rubrics.models import RubricVersion

MOST_ADDED = 500


@dataclass(frozen=True)
class Enqueued:
    queue: ReviewQueue
    added: Added


def enqueue_unlabelled(
    *,
    actor: User,
    version: RubricVersion,
    criterion: str,
    n: int,
    queue: ReviewQueue | None = None,
    name: str = "",
) -> Enqueued:
    """`n` rollouts at most; without a queue one is made, called `name` or after the criterion.

    Raises ReviewRefused.
    """
    rubric = version.rubric
    if not any(raw.get("id") == criterion for raw in version.spec.get("criteria") or ()):
        raise ReviewRefused("There is no such criterion to label.")
    if not 1 <= n <= MOST_ADDED:
        raise ReviewRefused(f"The number to add is from 1 to {MOST_ADDED}.")
    if queue is not None and queue.rubric_version.rubric_id != rubric.pk:
        raise ReviewRefused("The queue is about another rubric.")
    rollouts = unlabelled(rubric, version, criterion, n)
    if not rollouts:
        raise ReviewRefused(
            "Every rollout that this criterion was graded on is marked or in a queue already. "
            "Start a run to have more."
        )
    queue = queue or create_queue(
        actor=actor,
        project=rubric.project,
        spec=QueueSpec(
            name=name.strip() or f"{rubric.name}: {criterion}"[:120],
            rubric_version=version,
            criteria=[criterion],
        ),
    )
    return Enqueued(queue, add_items(queue, rollouts, actor=actor))
