"""Rows of an archive into the database as they are, and out of it again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import connection, models, router, transaction

from orchestrator.events.models import WaitingWords
from orchestrator.keeping.archive.tables import TABLES, Table, rows_of, through
from orchestrator.projects.models import Project, User
from training.models import TrainingJob


def trainings() -> Path:
    return Path(settings.DATA_DIR) / "training"


def insert(table: Table, rows: list[models.Model]) -> list[int]:
    """As they are: `bulk_create` would put the time of now into fields that take it once."""
    fields = [each for each in table.model._meta.concrete_fields if not each.primary_key]
    key = table.model._meta.pk
    found: Any = table.model._base_manager.get_queryset()
    using = router.db_for_write(table.model)
    size = max(1, connection.ops.bulk_batch_size(fields, rows))
    keys: list[int] = []
    for start in range(0, len(rows), size):
        rows_of_batch = found._insert(
            rows[start : start + size], fields=fields, returning_fields=[key], using=using, raw=True
        )
        keys += [each[0] for each in rows_of_batch]
    return keys


def discard(project: Project) -> None:
    """Takes away a half project with everything in it. Safe to call twice."""
    for folder in TrainingJob.objects.filter(project=project).values_list("folder", flat=True):
        if folder and Path(folder).parent == trainings():
            shutil.rmtree(folder, ignore_errors=True)
    WaitingWords.objects.filter(stream__project=project).delete()
    for table in reversed(TABLES):
        while keys := list(rows_of(table, project.pk).values_list("pk", flat=True)[:500]):
            with transaction.atomic():
                # Links within a table would hold one another.
                for each in table.model._meta.concrete_fields:
                    if each.is_relation and each.related_model is table.model and each.null:
                        rows_of(table, project.pk).filter(pk__in=keys).update(**{each.name: None})
                for each in table.people:
                    model, owner, _ = through(each)
                    model._base_manager.filter(**{f"{owner}__in": keys}).delete()
                found = table.model._base_manager.filter(pk__in=keys).order_by()
                found._raw_delete(found.db)
    User.objects.filter(username__endswith=f" (imported #{project.pk})", is_active=False).delete()
    project.delete()
