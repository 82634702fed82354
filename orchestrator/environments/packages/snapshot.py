"""A folder as it was: copied, with a digest of its content.

A version must not change when somebody edits the folder it came from, so servers run from the copy,
which is named by the digest. The digest is of what was copied, so nothing can change in between.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from orchestrator.environments.errors import SourceError

MAX_BYTES = 256 * 2**20
MAX_FILES = 20_000
LEFT_OUT = frozenset(
    {".git", ".hg", ".venv", "venv", "node_modules", "__pycache__", ".pytest_cache", ".mypy_cache",
     ".ruff_cache", ".tox", ".idea", ".vscode"}
)  # fmt: skip
"""Folders that tools leave beside the source."""
_CHUNK = 2**20


def copy_folder(source: Path, target: Path) -> str:
    """Copies the files below `source` to `target`, which must not exist; returns their digest.

    Paths, contents and the executable bit count; times and owners do not. Links may lead to files
    of the same folder and are copied as what they lead to. `SourceError` above the limits.
    """
    digest = hashlib.sha256()
    root = source.resolve()
    n_bytes = 0
    target.mkdir(parents=True)
    try:
        for n_files, (name, path) in enumerate(_files(root), start=1):
            if n_files > MAX_FILES:
                raise SourceError(f"path: {source} holds more than {MAX_FILES} files")
            is_executable = bool(path.stat().st_mode & stat.S_IXUSR)
            content = hashlib.sha256()
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as original, copy.open("xb") as written:
                while chunk := original.read(_CHUNK):
                    n_bytes += len(chunk)
                    if n_bytes > MAX_BYTES:
                        raise SourceError(
                            f"path: {source} holds more than {MAX_BYTES >> 20} MiB; leave out what "
                            f"the server does not need"
                        )
                    content.update(chunk)
                    written.write(chunk)
            # Readable for the user that servers run as.
            copy.chmod(0o755 if is_executable else 0o644)
            digest.update(f"{name}\0{int(is_executable)}\0{content.hexdigest()}\n".encode())
    except OSError as exc:
        raise SourceError(f"path: {source} cannot be copied: {exc}") from exc
    return digest.hexdigest()


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    """Relative names with `/`, sorted, and the files that they lead to."""
    found: list[tuple[str, Path]] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if name not in LEFT_OUT
            and not name.endswith(".egg-info")
            and not _is_venv(folder, name)
        ]
        for name in names:
            path = Path(folder, name)
            if name.endswith(".pyc"):
                continue
            resolved = path.resolve()
            if resolved != path and root not in resolved.parents:
                raise SourceError(f"path: {path.relative_to(root)} is a link out of the folder")
            if resolved.is_file():
                found.append((path.relative_to(root).as_posix(), resolved))
        for name in folders:
            if Path(folder, name).is_symlink():
                raise SourceError(
                    f"path: {Path(folder, name).relative_to(root)} is a link to a folder"
                )
    return iter(sorted(found))


def _is_venv(folder: str, name: str) -> bool:
    return Path(folder, name, "pyvenv.cfg").is_file()
