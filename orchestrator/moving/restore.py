"""Putting a backup back, into an installation that is empty.

The database comes last, since it is what an installation is recognised by: a restore that was cut
off before leaves files and no rows, and is begun again in an empty folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.db import connections

from orchestrator.moving import backup, files, places, postgres, schema, sqlite
from orchestrator.moving.archive import Manifest, Reader, reading
from orchestrator.moving.errors import MovingError


@dataclass
class Restored:
    manifest: Manifest
    files: int = 0
    paths: int = 0
    """Values that named a file of the old data folder and name it in the new one now."""
    notes: list[str] = field(default_factory=list)
    """What the operator still has to do."""


def restore(
    path: Path,
    *,
    data: Path,
    say: Callable[[str], None] = lambda line: None,
    alias: str = "default",
) -> Restored:
    """Raises MovingError; the database is then as it was."""
    connection = connections[alias]
    with reading(path) as reader:
        manifest = reader.manifest
        _require_same_database(manifest, connection.vendor)
        schema.require_known(manifest.migrations)
        database = Path(str(connection.settings_dict["NAME"]))
        if connection.vendor == "sqlite":
            connection.close()
            sqlite.require_empty(database)
        else:
            schema.require_empty(alias)
        files.require_room(data, reader)
        say("checking the backup")
        backup.check_content(reader, path)
        done = Restored(manifest)
        say("unpacking files")
        done.files = files.unpack(data, reader)
        _put_key(reader, data, done)
        say("loading the database")
        if connection.vendor == "sqlite":
            sqlite.load(database, reader)
        else:
            postgres.load(alias, reader)
    if not schema.is_up_to_date(alias):
        say("bringing the schema up to date")
        schema.bring_up_to_date(alias)
    if str(data) != manifest.data_folder:
        done.paths = places.rename(alias, Path(manifest.data_folder), data)
        if any(name.startswith("files/env/packages/") for name in manifest.members):
            done.notes.append(
                f"Environments from folders and packages were installed below "
                f"{manifest.data_folder}; their virtual environments name that path: register "
                "them again."
            )
    return done


def _require_same_database(manifest: Manifest, vendor: str) -> None:
    if manifest.vendor != vendor:
        raise MovingError(
            f"The backup holds a {manifest.vendor} database, and this installation uses {vendor}. "
            "Restore it with STACK=embedded, then `manage.py migrate_stack` leads into PostgreSQL."
            if manifest.vendor == "sqlite"
            else f"The backup holds a {manifest.vendor} database, and this installation uses "
            f"{vendor}: set STACK=scale and DATABASE_URL."
        )


def _put_key(reader: Reader, data: Path, done: Restored) -> None:
    """The backup's key, if it has one, takes the place of the one made for the empty folder."""
    if reader.manifest.key_fingerprint == backup.fingerprint():
        return
    is_given = bool(os.environ.get("SECRET_KEY") or os.environ.get("SECRET_KEY_FILE"))
    if backup.SECRET_KEY in reader.manifest.members and not is_given:
        target = data / backup.SECRET_KEY
        draft = target.with_name(f".{target.name}.restored")
        reader.extract(backup.SECRET_KEY, draft)
        draft.chmod(0o600)
        draft.replace(target)
        settings.SECRET_KEY = target.read_text(encoding="utf-8").strip()
        return
    done.notes.append(
        "The SECRET_KEY is not the one of the backup: everybody signs in again, and stored API "
        "keys and the secrets of webhooks cannot be read. Set the former key as SECRET_KEY, or as "
        "SECRET_KEY_PREVIOUS and run `manage.py rotate_secrets`; or enter them again."
    )
