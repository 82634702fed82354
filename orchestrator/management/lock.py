"""One supervisor per data folder: an exclusive `flock` that ends with the process that holds it.

The descriptor is closed on exec (Python's default), so a child that outlives the supervisor does
not keep the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FolderInUseError(RuntimeError):
    """Another supervisor runs on this data folder."""


@contextmanager
def folder_lock(folder: Path, *, port: int) -> Iterator[None]:
    """Holds the folder's lock; FolderInUseError at once if another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "up.lock").open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise FolderInUseError(
                f"Switchback already runs on {folder} ({_holder(file.name)}). "
                "Stop it first, or choose another folder with SWITCHBACK_DATA."
            ) from None
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid(), "port": port}))
        file.flush()
        yield


def _holder(path: str) -> str:
    try:
        held = json.loads(Path(path).read_text(encoding="utf-8"))
        return f"process {held['pid']}, http://127.0.0.1:{held['port']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "by another process"
