"""What an agent has left in its folder, for criteria that look at files.

Told only after the end of the episode, to whoever runs it, never to the agent. Files are opened by
descriptor without following links; long or binary ones are told by size and digest alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import Any

MAX_FILES = 200
MAX_TEXT_BYTES = 32_768
MAX_HASHED_BYTES = 8 * 2**20


def files_of(folder: Path) -> dict[str, dict[str, Any]]:
    """Path to {"size", "sha256", "text"}: sorted, at most `MAX_FILES`; `text` may be null."""
    found: dict[str, dict[str, Any]] = {}
    for root, folders, names, root_fd in os.fwalk(folder, follow_symlinks=False):
        folders.sort()
        for name in sorted(names):
            record = _record(name, root_fd)
            if record is not None:
                found[Path(root, name).relative_to(folder).as_posix()] = record
            if len(found) == MAX_FILES:
                return found
    return found


def _record(name: str, root_fd: int) -> dict[str, Any] | None:
    """None for what is not a regular file."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=root_fd)
    except OSError:
        return None
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return None
        record: dict[str, Any] = {"size": status.st_size, "sha256": "", "text": None}
        if status.st_size > MAX_HASHED_BYTES:
            return record
        content = file.read(MAX_HASHED_BYTES)
    record["sha256"] = hashlib.sha256(content).hexdigest()
    if len(content) <= MAX_TEXT_BYTES:
        with contextlib.suppress(UnicodeDecodeError):
            record["text"] = content.decode("utf-8")
    return record
