"""What pages read of drafts, uploads and versions under comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Q, QuerySet

from orchestrator.environments.authoring.content import content_of
from orchestrator.environments.authoring.diff import Side
from orchestrator.environments.authoring.drafts import FIELDS
from orchestrator.environments.models import (
    DraftTask,
    Environment,
    EnvironmentDraft,
    EnvironmentVersion,
    Split,
    Task,
    TaskUpload,
)
from orchestrator.environments.services import NewTask

PAGE = 100


@dataclass(frozen=True)
class DraftTaskPage:
    tasks: Sequence[DraftTask]
    number: int
    n_pages: int
    n_found: int
    """Tasks that the filter lets through."""

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE + 1 if self.n_found else 0

    @property
    def last(self) -> int:
        return min(self.number * PAGE, self.n_found)


def draft_of(environment: Environment) -> EnvironmentDraft | None:
    return (
        EnvironmentDraft.objects.select_related("environment", "base", "updated_by")
        .filter(environment=environment)
        .first()
    )


def drafts_in(project_id: int) -> QuerySet[EnvironmentDraft]:
    drafts = EnvironmentDraft.objects.filter(environment__project_id=project_id)
    return drafts.select_related("environment__project", "base", "updated_by")


def drafted(project_id: int) -> set[int]:
    """Environments of a project that have a draft."""
    rows = EnvironmentDraft.objects.filter(environment__project_id=project_id)
    return set(rows.values_list("environment_id", flat=True))


def draft_tasks(
    draft: EnvironmentDraft, *, split: str = "", family: str | None = None, text: str = ""
) -> QuerySet[DraftTask]:
    query = DraftTask.objects.filter(draft=draft)
    if split:
        query = query.filter(split=split)
    if family is not None:
        query = query.filter(family=family)
    if text:
        query = query.filter(Q(key__icontains=text) | Q(prompt__icontains=text))
    return query.order_by("key")


def draft_keys(draft: EnvironmentDraft, **filters: Any) -> list[str]:
    """Of the tasks that `draft_tasks` gives for the same filters."""
    return list(draft_tasks(draft, **filters).values_list("key", flat=True))


def draft_task_page(query: QuerySet[DraftTask], *, page: int) -> DraftTaskPage:
    n_found = query.count()
    n_pages = max(1, -(-n_found // PAGE))
    number = min(max(page, 1), n_pages)
    start = (number - 1) * PAGE
    rows = list(query.defer("spec", "reference", "reset")[start : start + PAGE])
    return DraftTaskPage(rows, number, n_pages, n_found)


def draft_counts(draft: EnvironmentDraft) -> dict[str, int]:
    """Tasks by split, every split named."""
    rows = DraftTask.objects.filter(draft=draft).order_by().values_list("split")
    found = dict(rows.annotate(n=Count("pk")))
    return {split: found.get(split, 0) for split in Split.values}


def draft_families(draft: EnvironmentDraft) -> list[str]:
    rows = DraftTask.objects.filter(draft=draft).order_by("family")
    return list(rows.values_list("family", flat=True).distinct()[:200])


def draft_task(draft: EnvironmentDraft, key: str) -> DraftTask | None:
    return DraftTask.objects.filter(draft=draft, key=key).first()


def neighbours(draft: EnvironmentDraft, key: str) -> tuple[str, str]:
    """Keys before and after; empty at the ends."""
    query = DraftTask.objects.filter(draft=draft)
    before = query.filter(key__lt=key).order_by("-key").values_list("key", flat=True).first()
    after = query.filter(key__gt=key).order_by("key").values_list("key", flat=True).first()
    return before or "", after or ""


def is_sealed(draft: EnvironmentDraft, task: DraftTask) -> bool:
    """Whether a published version holds the task as select or test: its answer stays closed until
    the author opens it on purpose.
    """
    if draft.base_id is None or task.split == Split.TRAIN:
        return False
    return (
        Task.objects.filter(version_id=draft.base_id, key=task.key)
        .exclude(split=Split.TRAIN)
        .exists()
    )


def uploads_in(project_id: int) -> QuerySet[TaskUpload]:
    uploads = TaskUpload.objects.filter(draft__environment__project_id=project_id)
    return uploads.select_related("draft__environment__project")


def uploads_of(draft: EnvironmentDraft, *, limit: int = 10) -> list[TaskUpload]:
    query = TaskUpload.objects.filter(draft=draft).defer("rows", "errors")
    return list(query.select_related("created_by").order_by("-pk")[:limit])


@dataclass(frozen=True)
class UploadEffect:
    """What applying would do to the draft as it is now."""

    n_new: int
    n_same_key: int
    n_removed: int
    """By `replace`."""


def upload_effect(draft: EnvironmentDraft, upload: TaskUpload) -> UploadEffect:
    keys = {row["task"]["key"] for row in upload.rows}
    present = set(DraftTask.objects.filter(draft=draft).values_list("key", flat=True))
    return UploadEffect(len(keys - present), len(keys & present), len(present - keys))


def side_of_version(version: EnvironmentVersion | None) -> Side:
    """Nothing stands for what was before the first version."""
    if version is None:
        return Side({}, {})
    rows = Task.objects.filter(version=version).iterator(chunk_size=1000)
    return Side(
        {name: getattr(version, name) for name in FIELDS},
        {row.key: content_of(row) for row in rows},
    )


def side_of_draft(draft: EnvironmentDraft) -> Side:
    rows = DraftTask.objects.filter(draft=draft).iterator(chunk_size=1000)
    return Side(_fields(draft), {row.key: content_of(row) for row in rows})


def _fields(item: EnvironmentVersion | EnvironmentDraft) -> dict[str, Any]:
    return {name: getattr(item, name) for name in FIELDS}


def tasks_of_version(version: EnvironmentVersion) -> list[NewTask]:
    return [content_of(row) for row in Task.objects.filter(version=version).order_by("key")]


def tasks_of_draft(draft: EnvironmentDraft) -> list[NewTask]:
    return [content_of(row) for row in DraftTask.objects.filter(draft=draft).order_by("key")]


def version_numbered(environment: Environment, number: int) -> EnvironmentVersion | None:
    return EnvironmentVersion.objects.filter(environment=environment, number=number).first()


def versions_of(environment: Environment) -> list[EnvironmentVersion]:
    """Newest first."""
    return list(environment.versions.order_by("-number"))


def newest_version(environment: Environment) -> EnvironmentVersion | None:
    """None while there is only a draft."""
    return environment.versions.order_by("-number").first()


def is_used(environment: Environment) -> bool:
    """Whether results name one of its versions. Rollouts cannot be without a run."""
    versions = EnvironmentVersion.objects.filter(environment=environment)
    return versions.filter(Q(runs__isnull=False) | Q(climbs__isnull=False)).exists()
