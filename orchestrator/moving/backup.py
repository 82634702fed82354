"""Writing a backup beside running work, and checking one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import connections

from orchestrator.moving import files, postgres, sqlite
from orchestrator.moving.archive import Manifest, Reader, Writer, reading, writing
from orchestrator.processes.build import VERSION
from orchestrator.projects.secrets import derived_key

SECRET_KEY = "secret_key"


def write(
    path: Path,
    *,
    data: Path,
    with_files: bool = True,
    with_models: bool = False,
    with_key: bool = False,
    say: Callable[[str], None] = lambda line: None,
    alias: str = "default",
) -> Manifest:
    """Writes `path` and reads it once more. Raises MovingError; then there is no file.

    `with_key` adds the key that the API keys of endpoints are encrypted with: whoever has such a
    backup can read them.
    """
    with writing(path, say) as writer:
        if connections[alias].vendor == "sqlite":
            manifest = _of_sqlite(writer, Path(str(connections[alias].settings_dict["NAME"])), path)
        else:
            manifest = postgres.dump(alias, writer)
        manifest.made_at = datetime.now(UTC).isoformat(timespec="seconds")
        manifest.version, manifest.data_folder = VERSION, str(data)
        manifest.key_fingerprint = fingerprint()
        if with_key:
            with writer.open(SECRET_KEY, mode=0o600) as add:
                add(settings.SECRET_KEY.encode())
        else:
            manifest.left_out.append("the SECRET_KEY, which opens the stored API keys")
        if with_files:
            manifest.moved_meanwhile = files.pack(data, writer, with_models=with_models)
        else:
            manifest.left_out.append("all files")
        if not (with_files and with_models):
            manifest.left_out.append("the models folder")
        writer.finish(manifest)
    try:
        check(path)
    except BaseException:
        path.unlink()  # a backup that cannot be read is worse than none
        raise
    return manifest


def _of_sqlite(writer: Writer, database: Path, path: Path) -> Manifest:
    with sqlite.snapshot(database, path) as copy:
        migrations, rows = sqlite.dump(copy, writer)
    return Manifest("", "", "sqlite", "", migrations, rows, "")


def check(path: Path) -> Manifest:
    """Reads every byte of a backup and counts its rows. Raises DamagedError or MovingError."""
    with reading(path) as reader:
        check_content(reader, path)
        return reader.manifest


def check_content(reader: Reader, path: Path) -> None:
    reader.check()
    if reader.manifest.vendor == "sqlite":
        sqlite.check(reader, path)
    else:
        postgres.check(reader)


def fingerprint() -> str:
    """Tells one SECRET_KEY from another; the key cannot be had from it."""
    return derived_key("fingerprint in backups").hex()[:16]
