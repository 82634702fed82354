from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

from django.conf import settings

from orchestrator.blobs.cache import BlobCache
from orchestrator.blobs.folder import FolderStore
from orchestrator.blobs.s3 import S3Store
from orchestrator.blobs.types import BlobStore

FOLDER, CACHE = "blobs", "blob-cache"


def store() -> BlobStore:
    """This installation's. Raises ValueError for a setting that says nothing usable."""
    return store_at(settings.BLOBS, Path(settings.DATA_DIR), settings.BLOB_CACHE_BYTES)


def is_shared() -> bool:
    """Whether other hosts reach it: what they need is put there besides this host's own folder."""
    return bool(settings.BLOBS)


@lru_cache(maxsize=8)
def store_at(place: str, data: Path, cache_bytes: int) -> BlobStore:
    """`place`: empty for the data folder, a path for another, or `s3://bucket/prefix`."""
    if not place:
        return FolderStore(data / FOLDER)
    parts = urlsplit(place)
    if parts.scheme == "s3" and parts.netloc:
        cache = BlobCache(data / CACHE, most_bytes=cache_bytes)
        return S3Store(parts.netloc, parts.path, cache=cache)
    if place.startswith("/"):
        return FolderStore(Path(place))
    raise ValueError(
        f"SWITCHBACK_BLOBS={place!r}: write s3://bucket/prefix, or the full path of a folder that "
        "all hosts share"
    )
