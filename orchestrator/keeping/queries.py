"""What pages and addresses show of transfers and retention."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from asgiref.sync import sync_to_async
from django.db.models import Count, Min, QuerySet
from django.utils.text import slugify

from orchestrator.blobs.services import store
from orchestrator.keeping.models import (
    Direction,
    RetentionMark,
    RetentionRule,
    RetentionRun,
    Transfer,
)
from orchestrator.projects.models import Project, User


def exports_of(project: Project) -> QuerySet[Transfer]:
    found = Transfer.objects.filter(project=project, direction=Direction.EXPORT)
    return found.select_related("job", "project", "created_by")


def imports_of(user: User) -> QuerySet[Transfer]:
    found = Transfer.objects.filter(created_by=user, direction=Direction.IMPORT)
    return found.select_related("job", "project", "created_by")


def file_name(transfer: Transfer) -> str:
    """For whoever saves its file."""
    name = slugify(transfer.name)[:60] or "project"
    return f"{name}-{transfer.created_at:%Y-%m-%d}.zip"


async def pieces_of(transfer: Transfer) -> AsyncIterator[bytes]:
    """Of its file, which may be gigabytes: none is read before the one before it was sent."""
    pieces = await sync_to_async(store().stream)(transfer.file_sha256)

    def following() -> bytes | None:
        return next(pieces, None)

    while (piece := await sync_to_async(following)()) is not None:
        yield piece


def rules_of(project: Project) -> QuerySet[RetentionRule]:
    return RetentionRule.objects.filter(project=project).select_related("changed_by")


def looks_of(project: Project) -> QuerySet[RetentionRun]:
    return RetentionRun.objects.filter(project=project).select_related("job", "asked_by")


def marked(project: Project) -> dict[str, Any]:
    """What waits for the end of its grace, when the first goes, and what is kept by hand."""
    marks = RetentionMark.objects.filter(project=project)
    waiting = marks.filter(kept_at__isnull=True).aggregate(n=Count("pk"), first=Min("due_at"))
    return {
        "n": waiting["n"],
        "first_at": waiting["first"],
        "kept": marks.filter(kept_at__isnull=False).count(),
    }
