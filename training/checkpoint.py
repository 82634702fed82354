"""Folders that appear whole or not at all: checkpoints and published weights.

A folder is written under a temporary name beside its place, its files and itself are fsynced, and
it is renamed; `LATEST` follows in the same way. A half-written folder is never visible under its
name and is removed at the next start. When the disk is full the error says so, the temporary folder
is gone, and the previous checkpoint is still the latest.

Knows bytes, not tensors: no torch here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.errors import CheckpointError

LATEST = "LATEST"
STATE_FILE = "state.json"
MANIFEST_FILE = "manifest.sha256"
_TEMPORARY = ".writing-"


@dataclass(frozen=True, slots=True)
class CheckpointRef:
    """A complete checkpoint."""

    step: int
    path: Path
    state: Mapping[str, Any]


def write_folder(target: Path, files: Mapping[str, bytes]) -> None:
    """Create a folder with these files (names may contain one slash) atomically.

    An existing target is replaced only if it is there from an earlier attempt at the same thing:
    the caller decides by choosing the name. Raises CheckpointError if it cannot be written.
    """
    temporary = target.with_name(f"{_TEMPORARY}{target.name}-{os.getpid()}")
    needed = sum(len(content) for content in files.values())
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        for name, content in files.items():
            path = temporary / name
            path.parent.mkdir(exist_ok=True)
            with path.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        for folder in {temporary, *((temporary / name).parent for name in files)}:
            sync_folder(folder)
        if target.exists():
            shutil.rmtree(target)
        temporary.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise CheckpointError(
            f"cannot write {target} ({needed / 1e6:.1f} MB, {_free_mb(target.parent)} free): "
            f"{error.strerror or error}; what was saved before is intact"
        ) from error


def write_file(target: Path, content: bytes) -> None:
    """Replace one file atomically. Raises CheckpointError if it cannot be written."""
    temporary = target.with_name(f"{_TEMPORARY}{target.name}-{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise CheckpointError(
            f"cannot write {target} ({_free_mb(target.parent)} free): {error.strerror or error}"
        ) from error


def sync_folder(folder: Path) -> None:
    """Make renames in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(root: Path) -> None:
    """Delete what an interrupted writer left under temporary names."""
    if not root.is_dir():
        return
    for path in root.iterdir():
        if not path.name.startswith(_TEMPORARY):
            continue
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def save_checkpoint(
    root: Path,
    *,
    step: int,
    manifest_sha256: str,
    state: Mapping[str, Any],
    files: Mapping[str, bytes],
    keep: int = 2,
    best: int | None = None,
) -> Path:
    """Write `step-000123`, point LATEST at it, then delete all but the last `keep` and `best`."""
    target = root / step_name(step)
    write_folder(
        target,
        {
            **files,
            STATE_FILE: (json.dumps({**state, "step": step}, indent=1) + "\n").encode(),
            MANIFEST_FILE: f"{manifest_sha256}\n".encode(),
        },
    )
    write_file(root / LATEST, f"{target.name}\n".encode())
    older = [path for path in sorted(root.glob("step-*")) if path.name < target.name]
    for path in older[: max(0, len(older) - (keep - 1))]:
        if best is None or path.name != step_name(best):
            shutil.rmtree(path)
    return target


def latest_checkpoint(root: Path, *, manifest_sha256: str) -> CheckpointRef | None:
    """The checkpoint that LATEST names, or None if there is none yet.

    Raises CheckpointError if it belongs to another manifest or is damaged.
    """
    pointer = root / LATEST
    if not pointer.exists():
        return None
    path = root / pointer.read_text(encoding="utf-8").strip()
    try:
        state = json.loads((path / STATE_FILE).read_text(encoding="utf-8"))
        owner = (path / MANIFEST_FILE).read_text(encoding="utf-8").strip()
        step = int(state["step"])
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if owner != manifest_sha256:
        raise CheckpointError(
            f"{path} belongs to another manifest ({owner[:12]}, not {manifest_sha256[:12]}); "
            "start a new job instead of changing a running one"
        )
    return CheckpointRef(step=step, path=path, state=state)


def step_name(step: int) -> str:
    """Folder and file names sort like their steps."""
    return f"step-{step:06d}"


def sha256_of_file(path: Path) -> str:
    """Hash of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _free_mb(folder: Path) -> str:
    try:
        return f"{shutil.disk_usage(folder).free / 1e6:.1f} MB"
    except OSError:
        return "unknown space"
