"""Folders of files: laid out for an agent, and copied from one for a verifier.

Whatever an agent has left is foreign. The copy takes regular files, folders and links that stay
inside; pipes, sockets, devices and other links are left out. Nothing that an agent made is opened
by its name alone, and nothing of it is still running when it is copied.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from orchestrator.environments.sandbox import TASK_FOLDER
from orchestrator.environments.sandbox.limits import NOBODY, Isolation

MAX_ENTRIES = 20_000
MAX_DEPTH = 64
_CHUNK = 2**20


class ResultTooLargeError(ValueError):
    """What the agent has left is more than is copied; the message names the limit."""


def lay_out(root: Path, files: Mapping[str, str], isolation: Isolation) -> Path:
    """A private folder below `root` with `files` by path, owned by whom commands run as."""
    folder = _made(root)
    for name, content in files.items():
        path = folder / name
        if not path.is_relative_to(folder) or ".." in path.parts:
            raise ValueError(f"file name {name!r} leaves the task's folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    _give_away(folder, isolation)
    return folder


def copy_result(source: Path, root: Path, isolation: Isolation, *, max_bytes: int) -> Path:
    """A copy of an agent's folder below `root`. See the module's text.

    `ResultTooLargeError` beyond `max_bytes` of content (holes in files count), `MAX_ENTRIES` or
    `MAX_DEPTH`; the copy is not removed then.
    """
    folder = _made(root)
    source_fd = os.open(source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    target_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _Copy(max_bytes).folder(source_fd, target_fd, ())
    finally:
        os.close(source_fd)
        os.close(target_fd)
    _give_away(folder, isolation)
    return folder


class _Copy:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left_bytes = max_bytes
        self._left_entries = MAX_ENTRIES

    def folder(self, source_fd: int, target_fd: int, path: tuple[str, ...]) -> None:
        if len(path) > MAX_DEPTH:
            raise ResultTooLargeError(f"folders are more than {MAX_DEPTH} deep")
        for name in sorted(os.listdir(source_fd)):
            self._left_entries -= 1
            if self._left_entries < 0:
                raise ResultTooLargeError(f"there are more than {MAX_ENTRIES} files")
            status = os.stat(name, dir_fd=source_fd, follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                self._subfolder(source_fd, target_fd, path, name)
            elif stat.S_ISREG(status.st_mode):
                self._file(source_fd, target_fd, name, status)
            elif stat.S_ISLNK(status.st_mode):
                text = os.readlink(name, dir_fd=source_fd)
                if stays_inside(text, len(path)):
                    os.symlink(text, name, dir_fd=target_fd)

    def _subfolder(self, source_fd: int, target_fd: int, path: tuple[str, ...], name: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        try:
            inner_source = os.open(name, flags, dir_fd=source_fd)
        except PermissionError:
            # Its owner has closed it for itself, which stops everyone but root.
            os.chmod(name, 0o700, dir_fd=source_fd)
            inner_source = os.open(name, flags, dir_fd=source_fd)
        try:
            os.mkdir(name, 0o755, dir_fd=target_fd)
            inner_target = os.open(name, flags, dir_fd=target_fd)
            try:
                self.folder(inner_source, inner_target, (*path, name))
            finally:
                os.close(inner_target)
        finally:
            os.close(inner_source)

    def _file(self, source_fd: int, target_fd: int, name: str, status: os.stat_result) -> None:
        self._left_bytes -= status.st_size
        if self._left_bytes < 0:
            mib = self._max_bytes / 2**20
            raise ResultTooLargeError(f"the files hold more than {mib:g} MiB")
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            reading = os.open(name, flags, dir_fd=source_fd)
        except PermissionError:
            os.chmod(name, 0o600, dir_fd=source_fd)
            reading = os.open(name, flags, dir_fd=source_fd)
        mode = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
        try:
            writing = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode, dir_fd=target_fd)
            try:
                left = status.st_size
                while left > 0 and (chunk := os.read(reading, min(left, _CHUNK))):
                    left -= len(chunk)
                    while chunk:
                        chunk = chunk[os.write(writing, chunk) :]
            finally:
                os.close(writing)
        finally:
            os.close(reading)


def stays_inside(target: str, depth: int) -> bool:
    """Whether a link that lies `depth` folders below the task's folder leads nowhere else.

    `..` counts at the start alone: after a name, which may be a link, it could lead anywhere. A
    path from the root must begin with the task's folder, where the verifier finds the copy too.
    """
    if target.startswith("/"):
        if not target.startswith(f"{TASK_FOLDER}/"):
            return False
        target, depth = target.removeprefix(f"{TASK_FOLDER}/"), 0
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    return ups <= depth and ".." not in parts[ups:]


def _made(root: Path) -> Path:
    folder = root / secrets.token_hex(8)
    folder.mkdir(mode=0o700)
    return folder


def _give_away(folder: Path, isolation: Isolation) -> None:
    if not isolation.drops_root:
        return
    for path, names, files in os.walk(folder):
        for name in (*names, *files):
            os.chown(os.path.join(path, name), NOBODY, NOBODY, follow_symlinks=False)
    os.chown(folder, NOBODY, NOBODY, follow_symlinks=False)
