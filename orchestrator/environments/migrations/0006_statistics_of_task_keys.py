"""PostgreSQL learns how many keys of tasks hold a word: filters compare them in capitals.

Without it the planner takes two tasks to match where hundreds do, and begins lists with them.
"""

from __future__ import annotations

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

_NAME = "environments_task_key_words"


def make(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(
            f"CREATE STATISTICS IF NOT EXISTS {_NAME} ON (upper(key::text)) FROM environments_task"
        )


def drop(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    if schema_editor.connection.vendor == "postgresql":
        schema_editor.execute(f"DROP STATISTICS IF EXISTS {_NAME}")


class Migration(migrations.Migration):
    dependencies = [("environments", "0005_curriculum_draws")]

    operations = [migrations.RunPython(make, drop)]
