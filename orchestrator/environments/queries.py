"""What pages and the API read of environments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from django.db.models import Count, QuerySet

from orchestrator.environments.models import Environment, EnvironmentVersion, Task
from orchestrator.prepared import Prepared


@dataclass(frozen=True)
class SplitCount:
    split: str
    family: str
    tasks: int


def environments_in(project_id: int) -> QuerySet[Environment]:
    return Environment.objects.filter(project_id=project_id).select_related("project")


def environments_with_versions(project_id: int) -> QuerySet[Environment]:
    return environments_in(project_id).prefetch_related("versions")


def versions_in(project_id: int) -> QuerySet[EnvironmentVersion]:
    """Versions of all environments of a project."""
    versions = EnvironmentVersion.objects.filter(environment__project_id=project_id)
    return versions.select_related("environment__project")


def list_environments(project_id: int) -> QuerySet[Environment]:
    return (
        Environment.objects.filter(project_id=project_id)
        .prefetch_related("versions")
        .annotate(n_versions=Count("versions", distinct=True), n_tasks=Count("versions__tasks"))
        .order_by("name")
    )


def latest_version(environment_id: int) -> EnvironmentVersion:
    return (
        EnvironmentVersion.objects.select_related("environment")
        .filter(environment_id=environment_id)
        .latest("number")
    )


_of_slug = Prepared(
    lambda project, slug: versions_in(project).filter(environment__slug=slug).order_by("-number"),
    project=int,
    slug=str,
)
_of_slug_and_number = Prepared(
    lambda project, slug, number: versions_in(project).filter(
        environment__slug=slug, number=number
    ),
    project=int,
    slug=str,
    number=int,
)


def version_of(project_id: int, slug: str, number: int | None = None) -> EnvironmentVersion | None:
    """The newest version without a number."""
    if number is None:
        return _of_slug.first(project=project_id, slug=slug)
    return _of_slug_and_number.first(project=project_id, slug=slug, number=number)


def split_counts(version_id: int) -> list[SplitCount]:
    rows = (
        Task.objects.filter(version_id=version_id)
        .values("split", "family")
        .annotate(tasks=Count("id"))
        .order_by("split", "family")
    )
    return [SplitCount(row["split"], row["family"], row["tasks"]) for row in rows]


def list_tasks(version_id: int, *, split: str | None = None) -> QuerySet[Task]:
    query = Task.objects.filter(version_id=version_id)
    if split:
        query = query.filter(split=split)
    return query.order_by("split", "key")


def task_keys(version_id: int, split: str, n_tasks: int | None = None) -> list[Task]:
    """Tasks of a split by key, the first so many of them; loaded are `id` and `key`."""
    return _task_keys(n_tasks).all(version=version_id, split=split)


@lru_cache(maxsize=64)
def _task_keys(n_tasks: int | None) -> Prepared[Task]:
    return Prepared(
        lambda version, split: (
            Task.objects.only("key").filter(version=version, split=split).order_by("key")[:n_tasks]
        ),
        version=int,
        split=str,
    )


def task_counts(version_ids: Sequence[int]) -> dict[int, dict[str, int]]:
    """Tasks of each version by split, in one query."""
    found: dict[int, dict[str, int]] = {}
    rows = Task.objects.filter(version_id__in=version_ids).order_by("split")
    for version_id, split, n in rows.values_list("version_id", "split").annotate(n=Count("id")):
        found.setdefault(version_id, {})[split] = n
    return found
