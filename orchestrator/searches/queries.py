"""What the API reads of searches."""

from __future__ import annotations

from django.db.models import QuerySet

from optimizer.models import Search


def searches_in(project_id: int) -> QuerySet[Search]:
    """Without those that were never to run by themselves."""
    searches = Search.objects.filter(project_id=project_id, stream__isnull=False)
    return searches.select_related(
        *("project", "environment_version__environment", "rubric_version__rubric"),
        *("model", "seed_harness"),
    )
