"""From what a browser sends, a zip file or the files of a folder, to the texts of a harness. Pure.

Nothing is written to disk, and nothing is unpacked beyond the limits: sizes in an archive's
directory are claims, so the bytes are counted while they are read. A folder around everything is
passed over, as are hidden files and what archivers add; any other file that is not part of a
harness is refused by name.
"""

from __future__ import annotations

import io
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from optimizer.errors import HarnessInvalid
from optimizer.harness import CONFIG, DEMONSTRATIONS, INSTRUCTIONS, TOOLS, Harness
from orchestrator.harnesses.errors import UploadRefused

MAX_UPLOAD_BYTES = 8 * 2**20
"""As it is sent."""
MAX_BYTES = 16 * 2**20
"""Of all files together, unpacked. The largest harness of the examples has 30 kB."""
MAX_ENTRIES = 1_000
"""Of an archive, those that are passed over included."""
_ROOTS = (CONFIG, INSTRUCTIONS, DEMONSTRATIONS, TOOLS)
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError),
    *(ValueError, OverflowError, OSError, UnicodeError),
)
"""What `zipfile` raises of foreign bytes; RuntimeError for a password."""


def harness_of_zip(content: bytes) -> Harness:
    """Raises UploadRefused."""
    if len(content) > MAX_UPLOAD_BYTES:
        raise UploadRefused(_too_large("The file", len(content), MAX_UPLOAD_BYTES))
    return harness_of(list(_unzipped(content)))


def harness_of(files: Iterable[tuple[str, bytes]]) -> Harness:
    """`files`: path and content. Raises UploadRefused."""
    kept: dict[str, bytes] = {}
    size = 0
    for name, content in files:
        path = _safe(name)
        if path is None:
            continue
        size += len(content)
        if size > MAX_BYTES:
            raise UploadRefused(_too_large("All files together", size, MAX_BYTES))
        if path in kept:
            raise UploadRefused(f"{path}: is there twice. Send each file once.")
        kept[path] = content
    if not kept:
        raise UploadRefused(f"There is no file in it. A harness has at least {INSTRUCTIONS}.")
    root = _root(kept)
    texts = {path.removeprefix(root): _text(path, data) for path, data in kept.items()}
    try:
        return Harness.from_components(texts)
    except HarnessInvalid as error:
        raise UploadRefused(str(error)) from error


def _unzipped(content: bytes) -> Iterator[tuple[str, bytes]]:
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except _DAMAGED as error:
        raise UploadRefused("This is not a zip file. Send one, or choose the folder.") from error
    with archive:
        entries = archive.infolist()
        if len(entries) > MAX_ENTRIES:
            raise UploadRefused(
                f"The archive has {len(entries):,} entries; at most {MAX_ENTRIES:,} are read. "
                "Leave out what is not part of the harness."
            )
        left = MAX_BYTES
        for entry in entries:
            if entry.is_dir() or _safe(entry.filename) is None:
                continue
            if stat.S_ISLNK(entry.external_attr >> 16):
                raise UploadRefused(
                    f"{entry.filename}: is a link, and links are not followed. Put the file itself "
                    "into the archive."
                )
            if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                # What these others may ask for in memory is theirs to say.
                raise UploadRefused(
                    f"{entry.filename}: is packed in a way that is not read here. Make the archive "
                    "with the usual compression (deflate)."
                )
            try:
                with archive.open(entry) as file:
                    data = file.read(left + 1)
            except _DAMAGED as error:
                raise UploadRefused(
                    f"{entry.filename}: cannot be read ({error}). Make the archive again, without "
                    "a password."
                ) from error
            left -= len(data)
            if left < 0:
                raise UploadRefused(
                    f"{entry.filename}: with it the files have more than "
                    f"{MAX_BYTES // 2**20} MiB unpacked, which is the limit."
                )
            yield entry.filename, data


def _safe(name: str) -> str | None:
    """The path with plain separators; None for what is passed over. Raises UploadRefused."""
    path = PurePosixPath(name.replace("\\", "/"))
    is_absolute = path.is_absolute() or (path.parts[:1] and path.parts[0].endswith(":"))
    if is_absolute or ".." in path.parts or "\x00" in name:
        raise UploadRefused(
            f"{name!r:.120}: leads outside of the harness. Name files from its folder."
        )
    if any(part.startswith(".") or part == "__MACOSX" for part in path.parts) or not path.parts:
        return None
    return path.as_posix()


def _root(files: Mapping[str, bytes]) -> str:
    """The folder around everything, as `name/`; empty where a file of a harness is at the top."""
    if any(path in _ROOTS or path.startswith("skills/") for path in files):
        return ""
    first = {path.partition("/")[0] for path in files if "/" in path}
    tops = {path for path in files if "/" not in path}
    return f"{first.pop()}/" if len(first) == 1 and not tops else ""


def _text(path: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UploadRefused(
            f"{path}: is not text in UTF-8 (byte {error.start + 1}). Save it as UTF-8, or leave it "
            "out: a harness holds texts."
        ) from error


def _too_large(what: str, size: int, limit: int) -> str:
    return f"{what}: {size / 2**20:.1f} MiB; the limit is {limit // 2**20} MiB."
