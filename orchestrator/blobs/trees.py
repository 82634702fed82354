"""A folder of files as blobs: one for each file, and one that lists them.

The list is sorted, without times and owners, so that the same files have the same hash anywhere.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from orchestrator.blobs.errors import BlobDamaged, BlobError
from orchestrator.blobs.types import Blob, BlobStore

FORMAT = "switchback.tree.1"
MAX_FILES = 200_000


def put_tree(
    store: BlobStore, folder: Path, *, wanted: Callable[[str], bool] = lambda _: True
) -> Blob:
    """Keeps the files below `folder` whose paths are `wanted`; the blob returned lists them.

    Raises BlobError where something in it is neither a file nor a folder, links among them.
    """
    files: list[dict[str, Any]] = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not wanted(name):
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise BlobError(f"{path} is no plain file, and no other kind can be kept")
        if path.is_dir():
            continue
        if len(files) >= MAX_FILES:
            raise BlobError(f"{folder} has more than {MAX_FILES} files")
        blob = store.put_file(path)
        is_run = bool(path.stat().st_mode & 0o100)
        files.append({"path": name, "sha256": blob.sha256, "size": blob.size, "run": is_run})
    return store.put(json.dumps({"format": FORMAT, "files": files}).encode())


def files_of(store: BlobStore, tree: str) -> list[dict[str, Any]]:
    """Of each file: `path`, `sha256`, `size`, `run`. Raises BlobMissing, BlobDamaged."""
    try:
        listed = json.loads(store.read(tree))
        if listed["format"] != FORMAT:
            raise ValueError(f"of format {listed['format']!r}")
        files = list(listed["files"])
        for each in files:
            _safe(each["path"])
    except (ValueError, KeyError, TypeError) as error:
        raise BlobDamaged(f"blob {tree} is no list of files: {error}") from error
    return files


def fetch_tree(store: BlobStore, tree: str, folder: Path) -> None:
    """Makes `folder` of it, whole or not at all; one that is there stays as it is.

    Any number of processes may fetch the same. Raises BlobMissing, BlobDamaged, OSError.
    """
    if not folder.is_dir():
        fetch_files(store, files_of(store, tree), folder)


def fetch_files(
    store: BlobStore, files: list[dict[str, Any]], folder: Path, *, is_replacing: bool = False
) -> None:
    """The same of files as `files_of` lists them; nothing is made of none.

    `is_replacing`: instead of one that is there; whoever reads it meanwhile has what was.
    """
    if not files:
        return
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.{secrets.token_hex(4)}")
    aside = draft.with_name(f"{draft.name}.old")
    try:
        draft.mkdir(parents=True)
        for each in files:
            path = draft / each["path"]
            path.parent.mkdir(parents=True, exist_ok=True)
            with store.local(each["sha256"]) as found:
                shutil.copyfile(found, path)
            path.chmod(0o755 if each["run"] else 0o644)
        if is_replacing and folder.is_dir():
            folder.rename(aside)
        try:
            draft.rename(folder)
        except OSError:
            if not folder.is_dir():  # else another process was quicker
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(aside, ignore_errors=True)


def fetch_file(store: BlobStore, sha256: str, path: Path) -> None:
    """Makes a file of a blob, whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with store.local(sha256) as found:
            shutil.copyfile(found, draft)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def blobs_of(store: BlobStore, tree: str) -> set[str]:
    """The list itself and all that it lists: what keeps a tree whole."""
    return {tree, *(each["sha256"] for each in files_of(store, tree))}


def _safe(path: object) -> None:
    if not isinstance(path, str):
        raise ValueError("a path is no text")
    pure = PurePosixPath(path)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in path or "\\" in path:
        raise ValueError(f"the path {path!r} leads elsewhere")
