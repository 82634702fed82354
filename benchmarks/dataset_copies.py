"""Many large projects on PostgreSQL, from one: its rows again, under other ids, by INSERT … SELECT.

Of a database in which one project was written by `dataset` and nothing else. Copy `k` of a row has
its id plus `k` times the greatest id of its table. The words of copies name the copy's project and
stream, so that a search in one project has to leave out what is in the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.apps import apps
from django.db import connection, models

_TABLES = (
    "projects.Project",
    "projects.Membership",
    "environments.Environment",
    "environments.EnvironmentVersion",
    "environments.Task",
    "rubrics.Rubric",
    "rubrics.RubricVersion",
    "agents.ModelEndpoint",
    "optimizer.HarnessVersion",
    "events.Stream",
    "runs.Run",
    "runs.Rollout",
    "runs.VerdictRecord",
    "events.Event",
)
"""What a project of `dataset` consists of."""
_WORDS_INDEX = "CREATE INDEX IF NOT EXISTS events_text_words ON events_text USING gin (words)"


def write_copies(n_copies: int, say: Callable[[str], None]) -> None:
    """Needs a superuser: triggers rest meanwhile. The index of the words is built at the end."""
    kinds = [apps.get_model(name) for name in _TABLES]
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SET synchronous_commit = off")
        cursor.execute("SET maintenance_work_mem = '1GB'")
        cursor.execute("DROP INDEX IF EXISTS events_text_words")
        step = {kind: _greatest(cursor, kind._meta.db_table) for kind in kinds}
        for number in range(1, n_copies + 1):
            for kind in kinds:
                _copy(cursor, kind, step, number)
            _copy_words(cursor, step, number)
            say(f"project {number + 1} of {n_copies + 1} is written")
        for kind in kinds:
            table = kind._meta.db_table
            cursor.execute(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
            )
        cursor.execute(_WORDS_INDEX)
        say("the index of the words is built")
        cursor.execute("SET session_replication_role = origin")
        cursor.execute("VACUUM (ANALYZE)")


def _greatest(cursor: Any, table: str) -> int:
    cursor.execute(f"SELECT max(id) FROM {table}")
    return int(cursor.fetchone()[0] or 0)


def _copy(
    cursor: Any, kind: type[models.Model], step: dict[type[models.Model], int], number: int
) -> None:
    names, values = [], []
    for field in kind._meta.concrete_fields:
        column = connection.ops.quote_name(str(field.column))
        names.append(column)
        of = field.related_model if field.is_relation else None
        if field.primary_key:
            values.append(f"{column} + {number * step[kind]}")
        elif isinstance(of, type) and of in step:
            values.append(f"{column} + {number * step[of]}")
        elif kind._meta.label == "projects.Project" and field.name == "name":
            values.append(f"{column} || ' {number + 1}'")
        else:
            values.append(column)
    table = kind._meta.db_table
    cursor.execute(
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {table}"
        f" WHERE id <= {step[kind]} ORDER BY id"
    )


def _copy_words(cursor: Any, step: dict[type[models.Model], int], number: int) -> None:
    """What stands before `||` has no places, so that those of the words stay."""
    event, stream = apps.get_model("events.Event"), apps.get_model("events.Stream")
    project = apps.get_model("projects.Project")
    cursor.execute(
        f"""
        INSERT INTO events_text (event_id, words)
        SELECT t.event_id + {number * step[event]},
          ('''#p' || s.project_id + {number * step[project]} || ''' ''#s'
            || s.id + {number * step[stream]} || '''')::tsvector
          || ts_delete(t.words, ARRAY['#p' || s.project_id, '#s' || s.id])
        FROM events_text t JOIN events_event e ON e.id = t.event_id
        JOIN events_stream s ON s.id = e.stream_id
        WHERE t.event_id <= {step[event]} ORDER BY t.event_id
        """
    )
