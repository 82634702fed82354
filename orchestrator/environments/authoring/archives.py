"""A folder of texts as a zip file, and back. Pure; foreign archives are read by `unpacking`."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping

from unpacking import ArchiveRefused, Limits, is_hidden, read_archive

MAX_FILES = 1_000
MAX_BYTES = 64 * 2**20
"""Of all files together, unpacked."""
LIMITS = Limits(members=MAX_FILES, total_bytes=MAX_BYTES, sent_bytes=MAX_BYTES)
_MADE = (1980, 1, 1, 0, 0, 0)
"""The same folder gives the same bytes."""


class ArchiveRefusedError(ValueError):
    """Not a zip file, or one beyond a limit, which it names."""


def zipped(folder: str, files: Mapping[str, str]) -> bytes:
    """`files`: texts by path below `folder`."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(f"{folder}/{path}", _MADE), text.encode())
    return out.getvalue()


def unzipped(content: bytes, *, marker: str) -> dict[str, bytes]:
    """Contents by path below the folder that holds `marker`, which may be the archive's root.

    Hidden files are passed over. Raises ArchiveRefusedError.
    """
    try:
        files = read_archive(content, LIMITS, keep=lambda path: not is_hidden(path))
    except ArchiveRefused as refusal:
        raise ArchiveRefusedError(str(refusal)) from refusal
    root = _root(files, marker)
    return {path.removeprefix(root): data for path, data in files.items() if path.startswith(root)}


def _root(names: Iterable[str], marker: str) -> str:
    """The shortest folder with the marker; empty for the archive itself."""
    roots = [
        name.removesuffix(marker) for name in names if name == marker or name.endswith(f"/{marker}")
    ]
    if not roots:
        raise ArchiveRefusedError(f"The archive has no {marker}.")
    return min(roots, key=len)
