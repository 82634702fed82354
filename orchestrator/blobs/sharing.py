"""Folders of the data folder that other hosts need: put among the blobs, fetched on first use.

Rows name files by the full path that they have on one host. Below the data folder the path is the
same everywhere, so it is the key: `training/12/publish/v0003` on a host with another data folder is
looked for there, then among the blobs, as part of what was shared as `training/12`.

Where all processes have one data folder (`SWITCHBACK_BLOBS` is empty) nothing is shared or fetched.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import structlog
from django.conf import settings

from orchestrator.blobs.errors import BlobError
from orchestrator.blobs.keeping import blobs_in_use
from orchestrator.blobs.models import SharedFolder
from orchestrator.blobs.services import is_shared, store
from orchestrator.blobs.trees import blobs_of, fetch_file, fetch_files, files_of, put_tree
from orchestrator.blobs.types import BlobStore

log = structlog.get_logger(__name__)

_OF_ANY_HOST = re.compile(r"/((?:training|adapters)/\d+(?:/.*)?|lens/[^/]+)$")
"""What lies below data folders, in a path of a host whose data folder is not known here."""


@dataclass(frozen=True)
class Taken:
    """A folder as it was when it was put among the blobs; `record` makes it known."""

    key: str
    tree: str
    size: int
    is_file: bool = False


def key_of(path: str | Path) -> str | None:
    """Its path below the data folder, of this host or another; None for a path elsewhere."""
    path, data = Path(path), Path(settings.DATA_DIR)
    if path.is_relative_to(data):
        return path.relative_to(data).as_posix()
    found = _OF_ANY_HOST.search(path.as_posix())
    return found.group(1) if found and ".." not in path.parts else None


def take(path: Path, *, wanted: Callable[[str], bool] = lambda _: True) -> Taken | None:
    """Puts a file, or a folder's files, among the blobs; None where nothing is shared. Slow, so not
    within a transaction.

    Raises BlobError; FileNotFoundError where a file went away meanwhile.
    """
    key = key_of(path)
    if not is_shared() or key is None:
        return None
    blobs = store()
    if path.is_file():
        blob = blobs.put_file(path)
        return Taken(key, blob.sha256, blob.size, is_file=True)
    tree = put_tree(blobs, path, wanted=wanted)
    size = sum(each["size"] for each in files_of(blobs, tree.sha256))
    return Taken(key, tree.sha256, size)


def record(taken: Taken, *, version: int = 0) -> None:
    """From now on others fetch this state of the folder. Belongs in the caller's transaction."""
    SharedFolder.objects.update_or_create(
        key=taken.key,
        defaults={
            "tree": taken.tree,
            "is_file": taken.is_file,
            "size": taken.size,
            "version": version,
            "host": socket.gethostname(),
        },
    )


def forget(path: str | Path) -> None:
    """Its blobs go with the next cleaning."""
    SharedFolder.objects.filter(key=key_of(path)).delete()


def shared_version(path: str | Path) -> int | None:
    """Of what others would fetch; None where there is nothing."""
    if not is_shared():
        return None
    found = SharedFolder.objects.filter(key=key_of(path)).values_list("version", flat=True)
    return found.first()


def here(path: str | Path) -> Path:
    """The path on this host, whoever's it is; nothing is fetched."""
    path = Path(path)
    key = key_of(path)
    return path if key is None or path.exists() else Path(settings.DATA_DIR) / key


def is_offered(path: str | Path) -> bool:
    """Whether some host has shared exactly this folder or file; the store is not asked."""
    return is_shared() and SharedFolder.objects.filter(key=key_of(path)).exists()


def is_kept(path: str | Path) -> bool:
    """Whether it is here, or is part of what can be fetched. A store that is away gives nothing."""
    if here(path).exists():
        return True
    try:
        return is_offered(path) or bool(_remote(path))
    except BlobError as error:
        log.warning("shared folder not read", path=str(path), error=str(error))
        return False


def local(path: str | Path) -> Path:
    """A folder or file that rows name, on this host; fetched where it is not here yet.

    The path that is returned may still not exist: then nobody has it. Raises BlobError, OSError.
    """
    found = here(path)
    if found.exists() or not is_shared():
        return found
    alone = SharedFolder.objects.filter(key=key_of(path), is_file=True).first()
    if alone is None:
        fetch_files(store(), _remote(path), found)
    else:
        fetch_file(store(), alone.tree, found)
    return found


def fetch_again(path: str | Path) -> bool:
    """Replaces this host's folder by what is shared; False where nothing is."""
    found, remote = here(path), _remote(path)
    if not remote:
        return False
    fetch_files(store(), remote, found, is_replacing=True)
    return True


def _remote(path: str | Path) -> list[dict[str, Any]]:
    """The files of a shared folder at or below `path`, their paths relative to it."""
    key = key_of(path)
    if key is None or not is_shared():
        return []
    parts = key.split("/")
    above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
    row = SharedFolder.objects.filter(key__in=above, is_file=False).order_by("-key").first()
    if row is None:
        return []
    inside = key[len(row.key) :].strip("/")
    files = _files(row.tree)
    if not inside:
        return files
    cut = len(inside) + 1
    return [
        {**each, "path": each["path"][cut:]}
        for each in files
        if each["path"].startswith(f"{inside}/")
    ]


@lru_cache(maxsize=64)
def _files(tree: str) -> list[dict[str, Any]]:
    """A list never changes."""
    return files_of(store(), tree)


@blobs_in_use("shared folders")
def _in_use(blobs: BlobStore) -> Iterable[str]:
    for tree, is_file in SharedFolder.objects.values_list("tree", "is_file"):
        yield from [tree] if is_file else blobs_of(blobs, tree)
