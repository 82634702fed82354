"""The data folder's files: which ones belong to an installation, in and out of a backup.

Everything belongs, except what is named here: a folder that a later version adds is not forgotten.
The database is read first and the files after it, so what its rows name is there, unless it was
removed meanwhile; blobs and published adapters never change.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from orchestrator.moving.archive import Reader, Writer, checked_name
from orchestrator.moving.errors import MovingError

FILES = "files"
_MODELS = "models"
# Made again by whoever needs it, or worth nothing on another day.
_NEVER = {"blob-cache", "broker", "tmp", "logs", "up.lock", "up.out", "secret_key", "reproduction"}
_DATABASE = ("db.sqlite3", "test.sqlite3")
_ATTEMPTS = 3


def paths(folder: Path, *, with_models: bool) -> Iterator[Path]:
    """Files and links below `folder`, sorted, links not followed."""
    for root, folders, files in os.walk(folder):
        here = Path(root).relative_to(folder)
        linked = [name for name in folders if (Path(root) / name).is_symlink()]
        folders[:] = sorted(
            name
            for name in folders
            if name not in linked and _is_kept(here / name, with_models=with_models)
        )
        for name in sorted([*files, *linked]):
            if _is_kept(here / name, with_models=with_models):
                yield Path(root) / name


def _is_kept(path: Path, *, with_models: bool) -> bool:
    first = path.parts[0]
    if first in _NEVER or first.startswith(_DATABASE) or first.startswith("."):
        return False
    if first == _MODELS:
        return with_models
    # Servers and their sockets come and go; what was installed stays.
    return first != "env" or len(path.parts) == 1 or path.parts[1] == "packages"


def pack(folder: Path, writer: Writer, *, with_models: bool) -> list[str]:
    """Adds them; returns those that were removed, or never held still, while they were read."""
    restless: list[str] = []
    for path in paths(folder, with_models=with_models):
        relative = path.relative_to(folder).as_posix()
        name = f"{FILES}/{relative}"
        try:
            found = path.lstat()
            if stat.S_ISLNK(found.st_mode):
                writer.add_link(name, os.readlink(path))
            elif stat.S_ISREG(found.st_mode):
                writer.add_file(name, path, mode=stat.S_IMODE(found.st_mode))
                now = path.lstat()
                if (now.st_size, now.st_mtime_ns) != (found.st_size, found.st_mtime_ns):
                    restless.append(relative)
        except FileNotFoundError:
            restless.append(relative)
    return restless


def names(reader: Reader) -> dict[str, PurePosixPath]:
    """Members that are files, and where below the data folder they go."""
    return {
        name: checked_name(name).relative_to(FILES)
        for name in reader.manifest.members
        if name.startswith(f"{FILES}/")
    }


def require_room(folder: Path, reader: Reader) -> None:
    """Raises MovingError if a file of the backup exists already."""
    there = [str(path) for path in names(reader).values() if os.path.lexists(folder / path)]
    if there:
        raise MovingError(
            f"{folder} holds {len(there)} of the files already, such as {there[0]}: restore into "
            "an empty folder, named by SWITCHBACK_DATA."
        )


def unpack(folder: Path, reader: Reader) -> int:
    """Writes them; links last, so that nothing is written through one. Returns their number."""
    members, places = reader.manifest.members, names(reader)
    for name in sorted(places, key=lambda name: members[name].is_link):
        target = folder / places[name]
        target.parent.mkdir(parents=True, exist_ok=True)
        if members[name].is_link:
            target.symlink_to(os.fsdecode(b"".join(reader.pieces(name))))
        else:
            reader.extract(name, target)
            target.chmod(members[name].mode)
    return len(places)
