"""The full-text index, in the way of each database; events that exist are indexed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

from orchestrator.events.search_index import index_missing

# The log never reuses an id while it has rows. Once it is empty the index begins anew too.
_SQLITE = (
    "CREATE VIRTUAL TABLE events_text USING fts5(scope, words, content='',"
    " tokenize=\"unicode61 remove_diacritics 0 categories 'L* N* Co Mn Mc Me'\")",
    "CREATE TRIGGER events_text_emptied AFTER DELETE ON events_event"
    " WHEN NOT EXISTS (SELECT 1 FROM events_event)"
    " BEGIN INSERT INTO events_text(events_text) VALUES ('delete-all'); END",
)
_POSTGRESQL = (
    "CREATE TABLE events_text (event_id bigint PRIMARY KEY, words tsvector NOT NULL)",
    "CREATE INDEX events_text_words ON events_text USING gin (words)",
    "CREATE FUNCTION events_text_forget() RETURNS trigger LANGUAGE plpgsql AS $$"
    " BEGIN IF TG_OP = 'TRUNCATE' THEN TRUNCATE events_text;"
    " ELSE DELETE FROM events_text WHERE event_id = OLD.id; END IF; RETURN NULL; END $$",
    "CREATE TRIGGER events_text_deleted AFTER DELETE ON events_event"
    " FOR EACH ROW EXECUTE FUNCTION events_text_forget()",
    "CREATE TRIGGER events_text_truncated AFTER TRUNCATE ON events_event"
    " FOR EACH STATEMENT EXECUTE FUNCTION events_text_forget()",
)
_UNDO_SQLITE = ("DROP TRIGGER events_text_emptied", "DROP TABLE events_text")
_UNDO_POSTGRESQL = (
    "DROP TRIGGER events_text_deleted ON events_event",
    "DROP TRIGGER events_text_truncated ON events_event",
    "DROP FUNCTION events_text_forget",
    "DROP TABLE events_text",
)


def make(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    connection = schema_editor.connection
    is_sqlite = connection.vendor == "sqlite"
    with connection.cursor() as cursor:
        for statement in _SQLITE if is_sqlite else _POSTGRESQL:
            cursor.execute(statement)

        def execute(sql: str, params: Sequence[Any]) -> Sequence[Any]:
            cursor.execute(sql, params)
            return cursor.fetchall() if cursor.description else ()

        after = index_missing(execute, connection.vendor)
        while after:
            after = index_missing(execute, connection.vendor, after=after)


def drop(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    connection = schema_editor.connection
    with connection.cursor() as cursor:
        for statement in _UNDO_SQLITE if connection.vendor == "sqlite" else _UNDO_POSTGRESQL:
            cursor.execute(statement)


class Migration(migrations.Migration):
    dependencies = [("events", "0001_initial")]

    operations = [migrations.RunPython(make, drop)]
