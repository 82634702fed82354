"""What a store of blobs is. Every method may be repeated: a blob is named by its content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Protocol

CHUNK = 1 << 20
"""Bytes that are read at a time."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Blob:
    sha256: str
    size: int
    """Bytes."""


@dataclass(frozen=True)
class Stored:
    """A blob as a store lists it."""

    sha256: str
    size: int
    written_at: datetime


class BlobStore(Protocol):
    """Raises BlobStoreDown where it cannot be reached; never waits without an end."""

    def put(self, content: bytes | Iterable[bytes]) -> Blob:
        """Durable when it returns. Content of any size: pieces are not held in memory.

        Also where it was there before, it counts as written now (see `keeping`)."""
        ...

    def put_file(self, path: Path) -> Blob:
        """The same from a file, which must not change meanwhile (BlobDamaged if it did)."""
        ...

    def read(self, sha256: str) -> bytes:
        """Whole. Raises BlobMissing, BlobDamaged."""
        ...

    def stream(self, sha256: str) -> Iterator[bytes]:
        """In pieces. Raises BlobMissing before the first, BlobDamaged after the last."""
        ...

    def local(self, sha256: str) -> AbstractContextManager[Path]:
        """A file of this host with the content, checked, for as long as the block lasts. It is not
        to be written to. Raises BlobMissing, BlobDamaged."""
        ...

    def open(self, sha256: str) -> AbstractContextManager[IO[bytes]]:
        """The same, opened for reading: it can be sought in."""
        ...

    def find(self, sha256: str) -> Stored | None:
        """None where the store does not hold it."""
        ...

    def exists(self, sha256: str) -> bool: ...

    def delete(self, sha256: str) -> None:
        """Nothing happens where it is gone already."""
        ...

    def all(self) -> Iterator[Stored]:
        """Every blob, in the order of their hashes."""
        ...

    def check(self) -> None:
        """Writes and reads a small blob. Raises BlobError with the reason."""
        ...


def checked(sha256: str) -> str:
    """The hash itself, so that no other text becomes a path or an address. Raises ValueError."""
    if not _SHA256.fullmatch(sha256):
        raise ValueError(f"{sha256[:80]!r} is no sha256 in 64 small hexadecimal digits")
    return sha256


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(CHUNK):
        yield piece
