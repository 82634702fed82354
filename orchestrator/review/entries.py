"""The record of who did what in a queue. Written in the transaction of the deed."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from orchestrator.projects.models import User
from orchestrator.review.models import Deed, ReviewEntry, ReviewItem, ReviewQueue


def note(
    deed: Deed,
    *,
    actor: User | None,
    queue: ReviewQueue,
    at: datetime,
    item: ReviewItem | None = None,
    **detail: Any,
) -> None:
    ReviewEntry.objects.create(
        queue=queue,
        item_number=item.pk if item else None,
        item_name=name_of(item) if item else "",
        user=actor,
        deed=deed,
        detail=detail,
        at=at,
    )


def name_of(item: ReviewItem) -> str:
    """What people read; needs the rollouts with their tasks."""
    name = rollout_name(item.rollout)
    return f"{name} and #{item.other.replicate}"[:200] if item.other else name[:200]


def rollout_name(rollout: Any) -> str:
    number = f" #{rollout.replicate}" if rollout.replicate else ""
    return f"{rollout.task.key}{number}"
