from __future__ import annotations


class KeepingRefused(Exception):
    """What was asked for cannot be; the text says why and what to do."""


class ArchiveInvalid(KeepingRefused):
    """A file that no project can be made of."""
