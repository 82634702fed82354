from __future__ import annotations


class BlobError(Exception):
    """Something about stored bytes went wrong; the message names the blob or the store."""


class BlobMissing(BlobError):
    """The store does not hold it."""


class BlobDamaged(BlobError):
    """What came is not what was asked for: its hash differs."""


class BlobStoreDown(BlobError):
    """The store could not be asked, after all attempts; what it was asked to keep may or may not
    be there. Doing the same again is safe."""
