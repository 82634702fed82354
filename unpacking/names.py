"""Names inside an archive are foreign: each becomes a plain relative path, or is refused. Pure."""

from __future__ import annotations

from pathlib import PurePosixPath

from unpacking.refusal import ArchiveRefused

NOT_OURS = "__MACOSX"
"""Folder that some systems put into every archive."""
MAX_NAME, MAX_PART = 1_024, 255
"""Characters and bytes; the second is what file systems take."""


def safe_path(name: str) -> str:
    """With `/` between its parts; empty for the archive's own root. Raises ArchiveRefused.

    Backslashes separate, as Windows means them, so that no name changes its meaning with the
    system it is unpacked on.
    """
    path = PurePosixPath(name.replace("\\", "/"))
    first = path.parts[0] if path.parts else ""
    if path.is_absolute() or first.endswith(":") or first[1:2] == ":" or ".." in path.parts:
        raise ArchiveRefused(
            "outside",
            f"{name!r:.120}: leads outside of the folder. Name files from its top.",
            name,
        )
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
        raise ArchiveRefused("name", f"{name!r:.120}: has control characters in its name.", name)
    if len(name) > MAX_NAME or any(_is_long(part) for part in path.parts):
        raise ArchiveRefused("name", f"{name!r:.60}…: its name is too long. Shorten it.", name)
    return "" if not path.parts else path.as_posix()


def is_hidden(path: str) -> bool:
    """Files that begin with a dot, and what archivers add."""
    parts = PurePosixPath(path).parts
    return any(part.startswith(".") or part == NOT_OURS for part in parts)


def _is_long(part: str) -> bool:
    return len(part.encode("utf-8", "surrogatepass")) > MAX_PART
