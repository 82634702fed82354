"""Folders and zip archives as texts by path. What is in them is for `optimizer.harness` to judge.

An archive is foreign: it may lead outside, name a file twice, be encrypted, or unpack to more than
a disk holds. Each of these is refused with its reason, before anything large is unpacked.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from optimizer.errors import HarnessInvalid

MAX_FILE_BYTES = 1_000_000
MAX_FILES = 500
MAX_BYTES = 20_000_000
"""Of all files together."""
NOT_OURS = "__MACOSX"
"""Folder that some systems put into every archive."""


def texts_of_folder(folder: Path) -> dict[str, str]:
    """Raises HarnessInvalid; hidden files are left out."""
    texts = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            raise HarnessInvalid(f"{name}: links are not followed")
        if path.is_file() and not _is_hidden(PurePosixPath(name)):
            texts[name] = decoded(name, path.read_bytes())
    return texts


def texts_of_zip(data: bytes) -> dict[str, str]:
    """Raises HarnessInvalid. A folder that holds all the rest is left out of the paths, as people
    pack folders.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = _checked(archive)
            texts = {name: decoded(name, archive.read(entry)) for name, entry in entries.items()}
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise HarnessInvalid(f"not a zip archive: {error}") from error
    except (NotImplementedError, RuntimeError) as error:  # a method that we lack; a password
        raise HarnessInvalid(f"the archive cannot be unpacked: {error}") from error
    return _without_top_folder(texts)


def zip_of_texts(texts: Mapping[str, str]) -> bytes:
    """Equal texts give equal bytes: entries come as given and carry one fixed date."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in texts.items():
            entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def decoded(name: str, data: bytes) -> str:
    if len(data) > MAX_FILE_BYTES:
        raise HarnessInvalid(f"{name}: above {MAX_FILE_BYTES:,} bytes")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise HarnessInvalid(f"{name}: not UTF-8 text") from error


def _checked(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The files by path; hidden ones are left out."""
    found: dict[str, zipfile.ZipInfo] = {}
    total = 0
    for entry in archive.infolist():
        path = PurePosixPath(entry.filename)
        if path.is_absolute() or ".." in path.parts:
            raise HarnessInvalid(f"{entry.filename}: leads outside of the harness")
        if not path.parts or entry.is_dir() or _is_hidden(path) or path.parts[0] == NOT_OURS:
            continue
        if entry.file_size > MAX_FILE_BYTES:
            raise HarnessInvalid(f"{entry.filename}: above {MAX_FILE_BYTES:,} bytes")
        if path.as_posix() in found:
            raise HarnessInvalid(f"{entry.filename}: is in the archive twice")
        found[path.as_posix()] = entry
        total += entry.file_size
    if len(found) > MAX_FILES:
        raise HarnessInvalid(f"{len(found)} files; a harness has at most {MAX_FILES}")
    if total > MAX_BYTES:
        raise HarnessInvalid(f"{total:,} bytes; a harness has at most {MAX_BYTES:,}")
    return found


def _without_top_folder(texts: Mapping[str, str]) -> dict[str, str]:
    tops = {name.split("/")[0] for name in texts}
    if len(tops) != 1 or not all("/" in name for name in texts) or tops == {"skills"}:
        return dict(texts)
    return {name.split("/", 1)[1]: text for name, text in texts.items()}


def _is_hidden(path: PurePosixPath) -> bool:
    return any(part.startswith(".") for part in path.parts)
