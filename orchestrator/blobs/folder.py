"""Blobs in a folder of this host: `ab/cdef…`, written beside and renamed, so whole or not there."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from orchestrator.blobs.errors import BlobDamaged, BlobMissing, BlobStoreDown
from orchestrator.blobs.types import CHUNK, Blob, Stored, checked, pieces, sha256_of

_DRAFTS = "drafts"
_DRAFT_KEPT_S = 86_400.0
"""After that its writer has died."""
_PROBE = b"switchback"


class FolderStore:
    """See `types.BlobStore`. `is_synced`: blobs survive a loss of power once they are put."""

    def __init__(self, folder: Path, *, is_synced: bool = True) -> None:
        self.folder = folder
        self._is_synced = is_synced

    def __repr__(self) -> str:
        return str(self.folder)

    def path(self, sha256: str) -> Path:
        """Where its file is, or would be."""
        checked(sha256)
        return self.folder / sha256[:2] / sha256[2:]

    def put(self, content: bytes | Iterable[bytes]) -> Blob:
        digest, size = hashlib.sha256(), 0
        with self.draft() as (draft, file):
            for piece in [content] if isinstance(content, bytes) else content:
                digest.update(piece)
                size += len(piece)
                with self._telling():
                    file.write(piece)
            with self._telling():
                self._sync(file)
            blob = Blob(digest.hexdigest(), size)
            self.take(draft, blob.sha256)
        return blob

    def put_file(self, path: Path) -> Blob:
        with path.open("rb") as file:
            return self.put(pieces(file))

    @contextmanager
    def draft(self) -> Iterator[tuple[Path, IO[bytes]]]:
        """A file beside the blobs that is gone afterwards unless `take` has made it one."""
        drafts = self.folder / _DRAFTS
        path = drafts / f"{os.getpid()}.{secrets.token_hex(8)}"
        with self._telling():
            drafts.mkdir(parents=True, exist_ok=True)
            file = path.open("xb")
        try:
            yield path, file
        finally:
            path.unlink(missing_ok=True)
            with self._telling():
                file.close()

    def take(self, draft: Path, sha256: str) -> None:
        """Makes a finished draft the blob of this hash; harmless where it is there already."""
        target = self.path(sha256)
        with self._telling():
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(draft, target)
            if self._is_synced:
                _sync_folder(target.parent)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BlobStoreDown(f"cannot write to {self.folder}: {error}") from error

    def _sync(self, file: IO[bytes]) -> None:
        file.flush()
        if self._is_synced:
            os.fsync(file.fileno())

    def read(self, sha256: str) -> bytes:
        return b"".join(self.stream(sha256))

    def stream(self, sha256: str) -> Iterator[bytes]:
        try:
            file = self.path(sha256).open("rb")
        except FileNotFoundError:
            raise BlobMissing(f"blob {sha256} is not in {self.folder}") from None
        return self._checked_pieces(sha256, file)

    def _checked_pieces(self, sha256: str, file: IO[bytes]) -> Iterator[bytes]:
        digest = hashlib.sha256()
        with file:
            while piece := file.read(CHUNK):
                digest.update(piece)
                yield piece
        if digest.hexdigest() != sha256:
            raise BlobDamaged(f"blob {sha256} in {self.folder} is damaged: it reads as another")

    @contextmanager
    def local(self, sha256: str) -> Iterator[Path]:
        path = self.path(sha256)
        try:
            found = sha256_of(path)
        except FileNotFoundError:
            raise BlobMissing(f"blob {sha256} is not in {self.folder}") from None
        if found != sha256:
            raise BlobDamaged(f"blob {sha256} in {self.folder} is damaged: it reads as another")
        yield path

    @contextmanager
    def open(self, sha256: str) -> Iterator[IO[bytes]]:
        with self.local(sha256) as path, path.open("rb") as file:
            yield file

    def exists(self, sha256: str) -> bool:
        return self.path(sha256).is_file()

    def find(self, sha256: str) -> Stored | None:
        try:
            found = self.path(sha256).stat()
        except FileNotFoundError:
            return None
        return Stored(sha256, found.st_size, datetime.fromtimestamp(found.st_mtime, tz=UTC))

    def delete(self, sha256: str) -> None:
        self.path(sha256).unlink(missing_ok=True)

    def all(self) -> Iterator[Stored]:
        for folder in sorted(self.folder.glob("[0-9a-f][0-9a-f]")):
            for path in sorted(folder.iterdir()):
                if found := self.find(folder.name + path.name):
                    yield found

    def clear_drafts(self) -> int:
        """Removes what writers that died have left; returns how many files."""
        return clear_old(self.folder / _DRAFTS)

    def check(self) -> None:
        self.read(self.put(_PROBE).sha256)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def clear_old(folder: Path, *, older_than_s: float = _DRAFT_KEPT_S) -> int:
    """Removes files whose writer or reader has died; returns how many."""
    removed = 0
    for path in folder.glob("*"):
        try:
            # Of the name, not of the file: a second name of an old file is young.
            if time.time() - path.stat().st_ctime > older_than_s:
                path.unlink()
                removed += 1
        except FileNotFoundError:
            continue
    return removed
