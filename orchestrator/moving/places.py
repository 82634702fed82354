"""Columns that name files of the data folder by path: put right when the folder is another one."""

from __future__ import annotations

import json
from pathlib import Path

from django.apps import apps
from django.db import connections, models, transaction
from django.db.models import F, Value
from django.db.models.functions import Concat, Substr

PATHS = {
    "agents.ModelEndpoint": ("tokenizer_path", "adapter_path"),
    "runs.Run": ("adapter_path",),
    "training.TrainingJob": ("folder", "adapter_path", "manifest"),
    "training.Checkpoint": ("path", "merge"),
    "environments.EnvironmentVersion": ("source",),
    "environments.SourceRegistration": ("source",),
    "environments.EnvironmentDraft": ("source",),
}


def rename(alias: str, old: Path, new: Path) -> int:
    """Paths below `old` lie below `new`; returns how many values were changed."""
    changed = 0
    with transaction.atomic(using=alias):
        for label, names in PATHS.items():
            model = apps.get_model(label)
            for name in names:
                if isinstance(model._meta.get_field(name), models.JSONField):
                    changed += _in_json(alias, model, name, old, new)
                    continue
                rest = Substr(F(name), len(str(old)) + 1)
                changed += (
                    model._base_manager.using(alias)
                    .filter(**{f"{name}__startswith": f"{old}/"})
                    .update(**{name: Concat(Value(str(new)), rest)})
                )
    return changed


def _in_json(alias: str, model: type[models.Model], name: str, old: Path, new: Path) -> int:
    """Written past the model's own checks: published versions never change otherwise."""
    quote = connections[alias].ops.quote_name
    table, column = quote(model._meta.db_table), quote(name)
    is_postgres = connections[alias].vendor == "postgresql"
    text = f"{column}::text" if is_postgres else column
    value = f"replace({text}, %s, %s)" + ("::jsonb" if is_postgres else "")
    # As each database writes it: SQLite keeps our text, PostgreSQL its own.
    before, after = (
        json.dumps(f"{folder}/", ensure_ascii=not is_postgres)[:-1] for folder in (old, new)
    )
    with connections[alias].cursor() as cursor:
        cursor.execute(
            f"UPDATE {table} SET {column} = {value} WHERE {text} LIKE %s",
            [before, after, f"%{_escaped(before)}%"],
        )
        return int(cursor.rowcount)


def _escaped(text: str) -> str:
    """Without what LIKE reads otherwise; an underscore matches too much, which replaces nothing."""
    return text.replace("%", "_").replace("\\", "_")
