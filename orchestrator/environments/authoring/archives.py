"""A folder of texts as a zip file, and back. Pure; sizes are known before anything is unpacked."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping

MAX_FILES = 1_000
MAX_BYTES = 64 * 2**20
"""Of all files together, unpacked."""
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),
    *(ValueError, OverflowError, OSError),
)
"""What `zipfile` raises of foreign bytes: it seeks to where they say."""
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
    """Contents by path below the folder that holds `marker`, which may be the archive's root."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except _DAMAGED as exc:
        raise ArchiveRefusedError("is not a zip file") from exc
    with archive:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > MAX_FILES:
            raise ArchiveRefusedError(f"has {len(entries):,} files; the limit is {MAX_FILES:,}")
        size = sum(entry.file_size for entry in entries)
        if size > MAX_BYTES:
            raise ArchiveRefusedError(
                f"has {size // 2**20} MiB unpacked; the limit is {MAX_BYTES // 2**20} MiB"
            )
        root = _root([entry.filename for entry in entries], marker)
        found = {}
        for entry in entries:
            if not entry.filename.startswith(root):
                continue
            try:
                with archive.open(entry) as file:
                    # The size in the directory of an archive is a claim.
                    data = file.read(entry.file_size + 1)
            except _DAMAGED as exc:
                raise ArchiveRefusedError(f"{entry.filename} cannot be read: {exc}") from exc
            if len(data) > entry.file_size:
                raise ArchiveRefusedError(f"{entry.filename} is larger than it claims")
            found[entry.filename.removeprefix(root)] = data
    return found


def _root(names: list[str], marker: str) -> str:
    """The shortest folder with the marker; empty for the archive itself."""
    roots = [
        name.removesuffix(marker) for name in names if name == marker or name.endswith(f"/{marker}")
    ]
    if not roots:
        raise ArchiveRefusedError(f"has no {marker}")
    return min(roots, key=len)
