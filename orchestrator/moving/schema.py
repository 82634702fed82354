"""Which migrations a database has seen, and bringing an empty one to the same point."""

from __future__ import annotations

from collections.abc import Iterable

from django.core.management import call_command
from django.db import connections
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from orchestrator.moving.errors import MovingError

# Made by every `migrate`: a database that holds nothing else is empty.
SELF_MADE = {"django_migrations", "django_content_type", "auth_permission"}


def applied(alias: str) -> list[tuple[str, str]]:
    return sorted(MigrationRecorder(connections[alias]).applied_migrations())


def table_names(alias: str) -> list[str]:
    connection = connections[alias]
    with connection.cursor() as cursor:
        return sorted(connection.introspection.table_names(cursor))


def row_counts(alias: str) -> dict[str, int]:
    connection = connections[alias]
    counts: dict[str, int] = {}
    for table in table_names(alias):
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {connection.ops.quote_name(table)}")
            counts[table] = int(cursor.fetchone()[0])
    return counts


def require_empty(alias: str) -> None:
    """Raises MovingError if a table holds rows that somebody put there."""
    connection = connections[alias]
    for table in table_names(alias):
        if table in SELF_MADE:
            continue
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT 1 FROM {connection.ops.quote_name(table)} LIMIT 1")
            if cursor.fetchone():
                raise MovingError(
                    f"The database {connection.settings_dict['NAME']} is not empty: {table} has "
                    "rows. Nothing was changed; name an empty database."
                )


def require_known(migrations: Iterable[tuple[str, str]]) -> None:
    """Raises MovingError if this version of the product does not have one of them."""
    loader = MigrationExecutor(connections["default"]).loader
    unknown = sorted(
        f"{app}.{name}" for app, name in migrations if (app, name) not in loader.disk_migrations
    )
    if unknown:
        raise MovingError(
            "This version of Switchback does not know the schema of that database: "
            f"{', '.join(unknown[:5])}. It was written by a newer version, or with an extra (such "
            "as signing in by OpenID Connect) that is not set up here."
        )


def bring_to(alias: str, migrations: list[tuple[str, str]]) -> None:
    """Migrates a database without rows up to the given point; no permissions are made."""
    have = set(applied(alias))
    if beyond := sorted(f"{app}.{name}" for app, name in have - set(migrations)):
        raise MovingError(
            f"The database has a newer schema than what is to go into it ({beyond[0]}). "
            "Make it anew: DROP DATABASE and CREATE DATABASE."
        )
    executor = MigrationExecutor(connections[alias])
    nodes, wanted = executor.loader.graph.node_map, set(migrations)
    followed = {
        parent.key
        for key in wanted & set(nodes)
        for parent in nodes[key].parents
        if parent.key[0] == key[0]
    }
    ends = sorted(wanted & set(nodes) - followed)  # the last ones of each app
    executor.migrate(ends)


def bring_up_to_date(alias: str) -> None:
    call_command("migrate", database=alias, interactive=False, verbosity=0)


def is_up_to_date(alias: str) -> bool:
    executor = MigrationExecutor(connections[alias])
    return not executor.migration_plan(executor.loader.graph.leaf_nodes())
