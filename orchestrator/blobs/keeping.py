"""Which blobs are kept: those that some row names. Apps say which by `@blobs_in_use`.

What nobody names is removed when it is older than `SPARED`: whoever writes a blob names it in a row
soon after, and writing counts as new even where the blob was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from orchestrator.blobs.types import BlobStore

SPARED = timedelta(days=7)

_users: dict[str, Callable[[BlobStore], Iterable[str]]] = {}


def blobs_in_use(
    name: str,
) -> Callable[[Callable[[BlobStore], Iterable[str]]], Callable[[BlobStore], Iterable[str]]]:
    """Registers what lists the hashes that rows of an app name. It raises rather than leave some
    out."""

    def register(
        find: Callable[[BlobStore], Iterable[str]],
    ) -> Callable[[BlobStore], Iterable[str]]:
        _users[name] = find
        return find

    return register


def in_use(store: BlobStore) -> dict[str, str]:
    """By hash, who names it."""
    return {sha256: name for name, find in _users.items() for sha256 in find(store)}


@dataclass(frozen=True)
class Cleaned:
    kept: int
    removed: int
    bytes_removed: int
    spared: int
    """Nobody names them; they are too young to go."""


def clean(store: BlobStore, *, spared: timedelta = SPARED, is_dry: bool = False) -> Cleaned:
    """Removes what nobody names. Listed first, so that what is put meanwhile is not looked at."""
    listed = list(store.all())
    used = in_use(store)
    limit = datetime.now(tz=UTC) - spared
    kept = removed = size = young = 0
    for each in listed:
        if each.sha256 in used:
            kept += 1
            continue
        now = store.find(each.sha256)
        if now is None:
            continue
        if now.written_at > limit:
            young += 1
            continue
        if not is_dry:
            store.delete(each.sha256)
        removed += 1
        size += each.size
    return Cleaned(kept, removed, size, young)
