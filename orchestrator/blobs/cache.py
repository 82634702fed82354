"""Copies of blobs of a store elsewhere, up to a bound of bytes; what was used longest ago goes.

Any number of processes of a host share the folder. A file that is in use has a second name (a hard
link), so that it can be taken out of the cache at any moment.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

from orchestrator.blobs.errors import BlobDamaged, BlobMissing
from orchestrator.blobs.folder import FolderStore, clear_old

_IN_USE = "in-use"
_LOOK_AFTER = 1 / 16
"""Share of the bound that is added between two looks at what is there."""


class BlobCache:
    def __init__(self, folder: Path, *, most_bytes: int) -> None:
        self._files = FolderStore(folder, is_synced=False)
        self._in_use = folder / _IN_USE
        self._most_bytes = most_bytes
        self._added = most_bytes  # so that the first addition looks
        self._lock = threading.Lock()

    def draft(self) -> AbstractContextManager[tuple[Path, IO[bytes]]]:
        return self._files.draft()

    def take(self, draft: Path, sha256: str) -> None:
        size = draft.stat().st_size
        self._files.take(draft, sha256)
        with self._lock:
            self._added += size
            must_look = self._added > self._most_bytes * _LOOK_AFTER
            if must_look:
                self._added = 0
        if must_look:
            self.shrink()

    @contextmanager
    def held(self, sha256: str) -> Iterator[Path | None]:
        """A name of the file for the length of the block; None where it is not here."""
        try:
            link = self._link(self._files.path(sha256))
        except FileNotFoundError:
            yield None
            return
        try:
            os.utime(link)  # of the file itself: used now
            yield link
        finally:
            link.unlink(missing_ok=True)

    def keep(self, draft: Path, sha256: str) -> Path:
        """`take`, and a name of the file that the caller removes after use."""
        link = self._link(draft)
        self.take(draft, sha256)
        return link

    def _link(self, path: Path) -> Path:
        self._in_use.mkdir(parents=True, exist_ok=True)
        link = self._in_use / f"{os.getpid()}.{secrets.token_hex(8)}"
        os.link(path, link)
        return link

    def read(self, sha256: str) -> bytes | None:
        """None where it is not here. A damaged copy is thrown away."""
        try:
            content = self._files.read(sha256)
        except BlobMissing:
            return None
        except BlobDamaged:
            self.drop(sha256)
            return None
        with suppress(FileNotFoundError):  # taken out meanwhile
            os.utime(self._files.path(sha256))
        return content

    def drop(self, sha256: str) -> None:
        self._files.delete(sha256)

    def shrink(self) -> None:
        """Down to the bound."""
        found = sorted(self._files.all(), key=lambda each: each.written_at, reverse=True)
        total = 0
        for each in found:
            total += each.size
            if total > self._most_bytes:
                self._files.delete(each.sha256)
        self._files.clear_drafts()
        clear_old(self._in_use)
